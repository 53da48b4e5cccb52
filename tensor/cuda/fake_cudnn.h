// Fused attention for tests, linked in the place of cudnn_attention.cc: it notes what it is asked
// for, and computes nothing.
#ifndef RUBATO_TENSOR_CUDA_FAKE_CUDNN_H_
#define RUBATO_TENSOR_CUDA_FAKE_CUDNN_H_

#include <vector>

#include "tensor/cuda/fused_attention.h"

namespace rubato {

struct FakeCudnn {
  bool is_there = false;
  bool refuses = false;  // all attention
  std::vector<FusedAttention> runs;
};

// The library's one state, as it is now.
FakeCudnn& TheFakeCudnn();

}  // namespace rubato

#endif  // RUBATO_TENSOR_CUDA_FAKE_CUDNN_H_
