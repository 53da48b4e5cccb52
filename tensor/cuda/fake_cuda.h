// A CUDA runtime for tests, that is linked in the place of NVIDIA's: its GPUs have the host's
// memory, do copies at once, and kernels not at all unless it is told how. It holds calls to the
// rules of the CUDA Runtime API and fails where it is told to.
#ifndef RUBATO_TENSOR_CUDA_FAKE_CUDA_H_
#define RUBATO_TENSOR_CUDA_FAKE_CUDA_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace rubato {

// Work of a stream. What it returns stays, as a fault of a kernel does.
using FakeWork = std::function<cudaError_t()>;

// A kernel's start. Where the arguments lie may change as soon as the call is over.
struct FakeLaunch {
  std::string kernel;  // the linker's name
  dim3 grid, block;
  size_t shared;
  void** arguments;
};

// A call's work, as it is done: of a recording, each time that it is replayed.
struct FakeStreamWork {
  enum Kind { kKernel, kUpload, kDownload, kOrder, kSignal, kReplay };
  Kind kind;
  int64_t stream;      // counted in the order in which streams were made
  int64_t other = -1;  // kOrder: what is waited for; -1 too if it has been given more since
  int64_t bytes = 0;   // kUpload, kDownload
};

struct FakeCuda {
  int devices = 2;
  int64_t memory_bytes = int64_t{4} << 30;  // of each
  int64_t fails_at = -1;                    // the call that fails, counted from 0
  cudaError_t error = cudaErrorUnknown;     // with which
  bool stays = false;                       // and so do all after it, as after a fault of a kernel
  bool hangs = false;                       // streams are never done
  bool copies_all_host = false;             // also what was not taken as pinned memory
  bool refuses_memory = false;              // to be registered
  std::function<FakeWork(const FakeLaunch&)> prepares;  // what a kernel does; null: nothing

  std::vector<std::string> calls;        // names, in order
  int64_t launches = 0;                  // of kernels, in streams or recordings
  std::vector<std::string> kernels;      // of these, by the linker's names
  int64_t bytes_up = 0, bytes_down = 0;  // copied to and from GPUs, likewise
  int64_t streams = 0;                   // that were made
  std::vector<FakeStreamWork> work;      // of all streams, in order
  int64_t live = 0;  // streams, events, graphs and memory not given back, or still registered
};

// The runtime's one state, as it is now. What it is told anew holds from then on.
FakeCuda& TheFakeCuda();

// Does it now or, where the stream is recorded, when the recording is replayed.
cudaError_t GiveToFakeStream(cudaStream_t stream, FakeWork work);

// What of the program's kernels was registered: __fatBinC_Wrapper_t of fatbinary_section.h.
const std::vector<const void*>& FakeFatBinaries();

// The GPUs' memory that is taken, with lengths.
std::vector<std::pair<const char*, int64_t>> FakeGpuMemory();

// Whose a stream is, and whose all of some memory, -1 if no GPU's; whether a stream is recorded.
int FakeGpuOf(cudaStream_t stream);
int FakeGpuOf(const void* memory, int64_t bytes);
bool IsFakeRecorded(cudaStream_t stream);

}  // namespace rubato

#endif  // RUBATO_TENSOR_CUDA_FAKE_CUDA_H_
