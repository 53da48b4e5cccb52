// `rubato bench step --servers N --workers N`: steps through servers.
#ifndef RUBATO_TOOLS_BENCH_CLUSTER_STEP_H_
#define RUBATO_TOOLS_BENCH_CLUSTER_STEP_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace rubato {

struct ClusterStepBench {
  std::string model = "mlp";  // as StepBench, of images of 28 by 28
  int64_t batch = 64;         // samples of a worker's part of a step
  int64_t threads = 1;        // of a worker
  std::string device = "cpu", precision = "float32";
  int64_t servers = 1;
  int64_t workers = 2;
  std::string mode = "sync";
  int64_t seconds = 3;  // of training
};

// Trains the built-in images by `rubato train` in a folder that goes afterwards, with SGD and
// momentum, and takes the median speed of its lines of metrics. For people, or as one JSON object.
// InvalidArgument, or the reason why the job did not run.
absl::StatusOr<std::string> BenchClusterStep(const ClusterStepBench& bench, bool json);

}  // namespace rubato

#endif  // RUBATO_TOOLS_BENCH_CLUSTER_STEP_H_
