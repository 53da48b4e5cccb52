// `rubato bench step --servers N --workers N`: steps through servers.
#ifndef RUBATO_TOOLS_BENCH_CLUSTER_STEP_H_
#define RUBATO_TOOLS_BENCH_CLUSTER_STEP_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "tools/bench/subject.h"

namespace rubato {

struct ClusterStepBench : BenchSubject {
  int64_t threads = 1;     // of a worker
  int64_t accumulate = 1;  // batches of a worker's part of a step
  int64_t servers = 1;
  int64_t server_threads = 1;  // with which each makes updates
  int64_t workers = 2;
  std::string mode = "sync";
  int64_t seconds = 3;  // of training
  int64_t steps = 0;    // 2 or more: instead of seconds
};

// Runs `rubato train` in a temporary folder, with SGD and momentum, and takes the median speed in
// its metrics. Examples are the built-in images or, for other shapes, random: images of 3,32,32, or
// a text. Also reports this speed as a share of the peak of matrix products on as many threads as
// the workers use; for GPUs that peak is not known. For people, or as one JSON object.
// InvalidArgument, or the reason why the job did not run.
absl::StatusOr<std::string> BenchClusterStep(const ClusterStepBench& bench, bool json);

}  // namespace rubato

#endif  // RUBATO_TOOLS_BENCH_CLUSTER_STEP_H_
