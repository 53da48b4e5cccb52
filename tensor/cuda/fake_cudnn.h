// Fused attention and convolutions for tests, linked in the place of cudnn_attention.cc and
// cudnn_convolution.cc: what is asked for is noted, and done by plain loops in its stream.
#ifndef RUBATO_TENSOR_CUDA_FAKE_CUDNN_H_
#define RUBATO_TENSOR_CUDA_FAKE_CUDNN_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "tensor/cuda/attention_library.h"
#include "tensor/cuda/convolution_library.h"
#include "tensor/cuda/fused_attention.h"
#include "tensor/cuda/fused_convolution.h"

namespace rubato {

struct FakeCudnn {
  bool is_there = false;
  bool refuses = false;  // all attention, all convolutions
  std::vector<FusedAttention> runs;
  std::vector<FusedConvolution> convolutions;
};

// The library's one state, as it is now.
FakeCudnn& TheFakeCudnn();

// What opens others in their place, from now on; null: nothing does.
struct FakeCudnnOpeners {
  absl::StatusOr<std::unique_ptr<AttentionLibrary>> (*attention)(int, cudaStream_t) = nullptr;
  absl::StatusOr<std::unique_ptr<ConvolutionLibrary>> (*convolution)(int, cudaStream_t) = nullptr;
};
FakeCudnnOpeners& TheFakeCudnnOpeners();

}  // namespace rubato

#endif  // RUBATO_TENSOR_CUDA_FAKE_CUDNN_H_
