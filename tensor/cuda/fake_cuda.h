// A CUDA runtime for tests, that is linked in the place of NVIDIA's: its GPUs have the host's
// memory, do copies at once and kernels not at all. It holds calls to the rules of the CUDA Runtime
// API and fails where it is told to.
#ifndef RUBATO_TENSOR_CUDA_FAKE_CUDA_H_
#define RUBATO_TENSOR_CUDA_FAKE_CUDA_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <string>
#include <vector>

namespace rubato {

struct FakeCuda {
  int devices = 2;
  int64_t memory_bytes = int64_t{4} << 30;  // of each
  int64_t fails_at = -1;                    // the call that fails, counted from 0
  cudaError_t error = cudaErrorUnknown;     // with which
  bool stays = false;                       // and so do all after it, as after a fault of a kernel
  bool hangs = false;                       // streams are never done

  std::vector<std::string> calls;        // names, in order
  int64_t launches = 0;                  // of kernels, in streams or recordings
  std::vector<std::string> kernels;      // of these, by the linker's names
  int64_t bytes_up = 0, bytes_down = 0;  // copied to and from GPUs, likewise
  int64_t live = 0;  // streams, events, graphs and pieces of memory not given back
};

// The runtime's one state, as it is now. What it is told anew holds from then on.
FakeCuda& TheFakeCuda();

}  // namespace rubato

#endif  // RUBATO_TENSOR_CUDA_FAKE_CUDA_H_
