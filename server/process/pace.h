// Throttles a background thread, so that it delays the training only a little at a time. For one
// thread.
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
    // In the same unit. Time at low priority, such as that of a background thread, is only in
    // `all`.
    double others = 0, all = 0;
  };

  // The share of a processor that the thread takes while others work. Its low priority already
  // makes it yield the processor, but it still shares memory bandwidth and caches with the threads
  // that run.
  static constexpr double kShare = 1.0 / 48;
  // Throttling delays the work by this much at most.
  static constexpr absl::Duration kLongest = absl::Seconds(15);
  // If others use less than this share of the processors' time, the thread is not throttled.
  static constexpr double kOthers = 0.25;

  // Work that begins.
  Pace(absl::Time now, const Processors& processors)
      : begin_(now), looked_at_(now), looked_(processors) {}

  // How long to rest, after the thread has used `busy` of a processor's time since the beginning.
  // Zero before the load of others is known, and in place of less than a millisecond. Reads the
  // load with `read` a few times a second.
  absl::Duration Rest(absl::Time now, absl::Duration busy, absl::FunctionRef<Processors()> read);

 private:
  const absl::Time begin_;
  absl::Time looked_at_;
  Processors looked_;
  bool others_work_ = false;  // between the last two looks
};

// Zeros if the kernel does not provide it: then nobody rests. `path` (see proc(5)) is changed only
// by tests.
Pace::Processors ReadProcessors(const std::string& path = "/proc/stat");

// The processor time that this thread has used.
absl::Duration ThreadTime();

}  // namespace rubato

#endif  // RUBATO_SERVER_PROCESS_PACE_H_
