// `rubato bench step --model-of-device`: a GPU's step without a GPU.
#ifndef RUBATO_TOOLS_BENCH_RECKONED_STEP_H_
#define RUBATO_TOOLS_BENCH_RECKONED_STEP_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tensor/cuda/work_list.h"
#include "tools/bench/subject.h"

namespace rubato {

// The work of a GPU for a step of `accumulate` batches, as in a worker. Takes as much host memory
// as a worker, and no GPU memory.
absl::StatusOr<std::vector<Work>> WorkOfStep(const BenchSetup& setup, int64_t batch,
                                             int64_t accumulate);

// Estimates how long the step would take from the published figures of a GPU ("h100"); the text
// says that it is an estimate. For people, or as one JSON object. InvalidArgument for an unknown
// GPU.
absl::StatusOr<std::string> ReckonStep(BenchSubject subject, int64_t accumulate,
                                       const std::string& gpu, bool json);

}  // namespace rubato

#endif  // RUBATO_TOOLS_BENCH_RECKONED_STEP_H_
