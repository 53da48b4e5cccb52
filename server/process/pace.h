// How a thread that works beside the training draws its work out, so that the training is held up
// little at a time. For one thread.
#ifndef RUBATO_SERVER_PROCESS_PACE_H_
#define RUBATO_SERVER_PROCESS_PACE_H_

#include <string>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"

namespace rubato {

class Pace {
 public:
  // What the processors of this machine have done since some moment.
  struct Processors {
    // In one unit. What is done at a low priority, as by such a thread, is in `all` alone.
    double others = 0, all = 0;
  };

  // The thread takes this share of a processor while others work: it yields to them by its priority
  // as well, but shares the way to memory and the processors' caches with whoever runs.
  static constexpr double kShare = 1.0 / 48;
  // Who waits for the work waits so much longer at most.
  static constexpr absl::Duration kLongest = absl::Seconds(15);
  // Where others do not have so much of the processors' time, nothing is held up.
  static constexpr double kOthers = 0.25;

  // Work that begins.
  Pace(absl::Time now, const Processors& processors)
      : begin_(now), looked_at_(now), looked_(processors) {}

  // How long to rest, with `busy` of a processor's time had since the beginning; none before it is
  // known what else goes on, and none for less than a millisecond. Looks at the processors, by
  // `read`, a few times a second.
  absl::Duration Rest(absl::Time now, absl::Duration busy, absl::FunctionRef<Processors()> read);

 private:
  const absl::Time begin_;
  absl::Time looked_at_;
  Processors looked_;
  bool others_work_ = false;  // between the last two looks
};

// Zeroes where the kernel does not say: then nobody rests. `path`, but for tests: see proc(5).
Pace::Processors ReadProcessors(const std::string& path = "/proc/stat");

// What this thread has had of a processor.
absl::Duration ThreadTime();

}  // namespace rubato

#endif  // RUBATO_SERVER_PROCESS_PACE_H_
