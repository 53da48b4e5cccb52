// A cuDNN for tests, linked in the place of cudnn_library.cc: its descriptors hold to the order of
// its interface, it has two engines for every graph, and runs do nothing, in their stream. It fails
// where it is told to.
#ifndef RUBATO_TENSOR_CUDA_FAKE_CUDNN_LIBRARY_H_
#define RUBATO_TENSOR_CUDA_FAKE_CUDNN_LIBRARY_H_

#include <cudnn_graph.h>

#include <cstdint>
#include <string>
#include <vector>

namespace rubato {

struct FakeCudnnLibrary {
  int64_t fails_at = -1;  // the call that fails, counted from 0
  cudnnStatus_t error = CUDNN_STATUS_INTERNAL_ERROR;

  std::vector<std::string> calls;       // names, in order
  std::vector<int64_t> runs;            // their engines, 0 or 1
  std::vector<std::string> violations;  // of the interface's order
  int64_t live = 0;                     // handles and descriptors
};

// The library's one state, as it is now.
FakeCudnnLibrary& TheFakeCudnnLibrary();

// From now on fused attention and convolutions of tests' GPUs are cuDNN's graphs, over this library
// (fake_cudnn.h).
void UseFakeCudnnLibrary();

}  // namespace rubato

#endif  // RUBATO_TENSOR_CUDA_FAKE_CUDNN_LIBRARY_H_
