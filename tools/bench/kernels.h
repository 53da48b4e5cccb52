// `rubato bench kernels`: the loops of a shard, against the memory's speed.
#ifndef RUBATO_TOOLS_BENCH_KERNELS_H_
#define RUBATO_TOOLS_BENCH_KERNELS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace rubato {

struct KernelBench {
  int64_t values = 16 << 20;  // of each array: larger than caches
  int rounds = 9;             // of which the medians count; the kernels take turns in each
};

// Sums, optimizers and codecs on one thread over parameters in memory, block by block, as a shard
// runs them. Traffic is what a kernel reads and writes by its formula. For people, or as one JSON
// object.
absl::StatusOr<std::string> BenchKernels(const KernelBench& bench, bool json);

int BenchKernelsMain(const std::vector<std::string>& arguments);

}  // namespace rubato

#endif  // RUBATO_TOOLS_BENCH_KERNELS_H_
