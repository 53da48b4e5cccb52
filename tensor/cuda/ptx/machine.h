// Runs a kernel: block after block, of a block one warp after the other to the next barrier.
#ifndef RUBATO_TENSOR_CUDA_PTX_MACHINE_H_
#define RUBATO_TENSOR_CUDA_PTX_MACHINE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tensor/cuda/ptx/decode.h"
#include "tensor/cuda/ptx/memory.h"

namespace rubato::ptx {

// What was run of a kernel.
struct Coverage {
  int64_t executed = 0;          // instructions, each thread's counted
  std::vector<uint8_t> reached;  // of the kernel's instructions: 1 if a thread came there
};

struct Launch {
  int64_t blocks = 1;
  int threads = 1;
  int64_t shared_bytes = 0;
  std::string parameters;  // as they lie in memory
  bool backwards = false;  // the order of blocks and of their warps, which has no meaning
};

// InvalidArgument for a launch that the kernel does not allow; Internal for what a kernel must not
// do, with its name, the block, the thread and the line: an access to what is not the GPU's or is
// not aligned, to shared memory that nobody has written or that another thread writes meanwhile, a
// barrier or shuffle that not all reach, a loop without an end; with `accesses`, if not null, races
// in the GPU's memory. Adds to `coverage`, if not null.
absl::Status Run(const Kernel& kernel, const Launch& launch, const GlobalMemory& memory,
                 GlobalAccesses* accesses = nullptr, Coverage* coverage = nullptr);

}  // namespace rubato::ptx

#endif  // RUBATO_TENSOR_CUDA_PTX_MACHINE_H_
