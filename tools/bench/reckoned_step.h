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

// What a step of `accumulate` batches gives a GPU to do, as a worker has it done. Takes the memory
// of the host that a worker takes, and none of the GPU's.
absl::StatusOr<std::vector<Work>> WorkOfStep(const BenchSetup& setup, int64_t batch,
                                             int64_t accumulate);

// How long it would take at what is published of a GPU ("h100"): a reckoning, as the text says.
// For people, or as one JSON object. InvalidArgument for a GPU of which nothing is known here.
absl::StatusOr<std::string> ReckonStep(BenchSubject subject, int64_t accumulate,
                                       const std::string& gpu, bool json);

}  // namespace rubato

#endif  // RUBATO_TOOLS_BENCH_RECKONED_STEP_H_
