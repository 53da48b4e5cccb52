// Delays for real workers (--speeds and --compute), so that each computation takes as long as in
// the simulator. With them, modes can be compared on a machine with fewer cores than the job has
// workers.
#ifndef RUBATO_COMMON_PACE_DELAYS_H_
#define RUBATO_COMMON_PACE_DELAYS_H_

#include <cstdint>
#include <functional>
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

  // The environment of a worker that is to use the same delays, also if a script starts it: both
  // variables, so that it does not get the caller's.
  std::vector<std::string> Variables() const;
  // What is not typed, by these variables.
  void AddVariables(const std::function<const char*(const char*)>& getenv);
};

class Delays {
 public:
  // Nullopt without --compute. Random draws use the job's seed. InvalidArgument for delays that
  // cannot be kept.
  static absl::StatusOr<std::optional<Delays>> Of(const DelayFlags& flags, const proto::Job& job);

  // The delay of the n-th computation (from 0), of `samples` samples, by the worker with rank
  // `rank`.
  absl::Duration Next(int rank, int64_t n, int64_t samples) const;

 private:
  Speeds speeds_;
  double micro_batch_seconds_ = 0;
  double micro_batch_samples_ = 1;
};

}  // namespace rubato

#endif  // RUBATO_COMMON_PACE_DELAYS_H_
