// `rubato bench step`: how long one local step of training takes.
#ifndef RUBATO_TOOLS_BENCH_STEP_H_
#define RUBATO_TOOLS_BENCH_STEP_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/bench/subject.h"

namespace rubato {

struct StepBench : BenchSubject {
  int64_t threads = 1;
  // Batches of a step, whose gradients a GPU adds up: parameters and gradient cross once a step.
  int64_t accumulate = 1;
  double seconds = 3;   // to measure for
  bool layers = false;  // also each layer by itself
};

// Forward, backward and SGD with momentum of a batch of random examples, over and over in one
// process; medians. On a GPU, where a worker has no optimizer: copy of the parameters, forward,
// backward, copy of the gradient. For people, or as one JSON object. InvalidArgument if there is no
// such model.
absl::StatusOr<std::string> BenchStep(const StepBench& bench, bool json);

// Returns the exit code.
int BenchStepMain(const std::vector<std::string>& arguments);

}  // namespace rubato

#endif  // RUBATO_TOOLS_BENCH_STEP_H_
