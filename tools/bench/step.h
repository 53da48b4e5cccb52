// `rubato bench step`: how long one local step of training takes.
#ifndef RUBATO_TOOLS_BENCH_STEP_H_
#define RUBATO_TOOLS_BENCH_STEP_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace rubato {

struct StepBench {
  std::string model = "mlp";   // a preset, or a whole model: section as YAML
  std::vector<int64_t> shape;  // of an example; empty: what the preset is usually trained with
  int64_t classes = 0;         // 0: likewise
  int64_t batch = 64;
  int64_t threads = 1;
  std::string device = "cpu";         // or cuda, as in a job
  std::string precision = "float32";  // of a GPU, likewise
  double seconds = 3;                 // to measure for
  bool layers = false;                // also each layer by itself
};

// Forward, backward and SGD with momentum of a batch of random examples, over and over in one
// process; medians. On a GPU, where a worker has no optimizer: parameters over, forward, backward
// and gradient back. For people, or as one JSON object. InvalidArgument if there is no such model.
absl::StatusOr<std::string> BenchStep(const StepBench& bench, bool json);

// Returns the exit code.
int BenchStepMain(const std::vector<std::string>& arguments);

}  // namespace rubato

#endif  // RUBATO_TOOLS_BENCH_STEP_H_
