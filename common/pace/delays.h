// Delays that real workers keep, as if each computation took as long as the simulator has it take:
// what --speeds and --compute say. So modes can be compared on a machine that has not as many cores
// as the job has workers.
#ifndef RUBATO_COMMON_PACE_DELAYS_H_
#define RUBATO_COMMON_PACE_DELAYS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/pace/speeds.h"
#include "proto/job.pb.h"

namespace rubato {

// As typed; empty: not given.
struct DelayFlags {
  std::string speeds;   // as Speeds::Parse takes them
  std::string compute;  // that a micro-batch takes by itself, as "20ms"

  // For a process that is to keep them too.
  std::vector<std::string> Arguments() const;
};

class Delays {
 public:
  // None if there is no --compute. The draws are those of the job's seed. InvalidArgument for what
  // nobody can keep.
  static absl::StatusOr<std::optional<Delays>> Of(const DelayFlags& flags, const proto::Job& job);

  // Of the n-th computation (from 0) of the worker of rank `rank`, of so many samples.
  absl::Duration Next(int rank, int64_t n, int64_t samples) const;

 private:
  Speeds speeds_;
  double micro_batch_seconds_ = 0;
  double micro_batch_samples_ = 1;
};

}  // namespace rubato

#endif  // RUBATO_COMMON_PACE_DELAYS_H_
