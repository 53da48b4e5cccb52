// The basis of a study's virtual time: how long a worker computes on this machine, and how fast a
// shard applies updates.
#ifndef RUBATO_TOOLS_BENCH_CONVERGENCE_CALIBRATION_H_
#define RUBATO_TOOLS_BENCH_CONVERGENCE_CALIBRATION_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/job.pb.h"

namespace rubato {

struct Calibration {
  double micro_batch_seconds = 0;  // median
  int64_t samples = 0;             // of a micro-batch
  // Bytes of parameters that a shard sums and applies in a second: the mean of a sum and an update.
  double change_bytes_per_second = 0;
};

// Computes gradients of `job` on one thread, on its own data, and sums and applies as many values
// block by block, for a second or so. Errors of the job's data and model.
absl::StatusOr<Calibration> Calibrate(const proto::Job& job);

// As `rubato simulate --compute` takes it.
std::string ComputeFlag(const Calibration& calibration);
// Likewise --apply.
std::string ApplyFlag(const Calibration& calibration);

std::string CalibrationJson(const Calibration& calibration);
absl::StatusOr<Calibration> ParseCalibration(absl::string_view text);

}  // namespace rubato

#endif  // RUBATO_TOOLS_BENCH_CONVERGENCE_CALIBRATION_H_
