// Properties of each kernel as nvcc compiles it: tensor/cuda/kernel_table.txt, embedded in the
// program.
#ifndef RUBATO_TOOLS_BENCH_KERNEL_FACTS_H_
#define RUBATO_TOOLS_BENCH_KERNEL_FACTS_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace rubato {

struct KernelFacts {
  int64_t registers;  // of a thread
  int64_t loads;      // of a thread that are under way at most
};

// By the kernel's name, of an architecture: 90 for sm_90. InvalidArgument if the table lacks it.
absl::StatusOr<std::map<std::string, KernelFacts>> ParseKernelTable(absl::string_view table,
                                                                    int architecture);
absl::StatusOr<std::map<std::string, KernelFacts>> KernelFactsOf(int architecture);

// Threads of a kernel that a processor holds at a time, in whole blocks.
int64_t ThreadsOfAProcessor(const KernelFacts& facts, int threads_of_a_block);

}  // namespace rubato

#endif  // RUBATO_TOOLS_BENCH_KERNEL_FACTS_H_
