// What a convolution as one piece of work is asked for: of cuDNN on a GPU, of plain loops in its
// emulation.
#ifndef RUBATO_TENSOR_CUDA_FUSED_CONVOLUTION_H_
#define RUBATO_TENSOR_CUDA_FUSED_CONVOLUTION_H_

#include <cstdint>
#include <string>

#include "common/base/check.h"
#include "tensor/convolution.h"
#include "tensor/tensor.h"

namespace rubato {

// How convolutions are computed: as products over what each output sees, or in one piece of work
// where they can be.
enum class ConvolutionForm { kProducts, kFused };

// Device::fused.
inline std::string FusedNames(bool attention, bool convolutions) {
  return attention && convolutions ? "attention and convolutions"
         : attention               ? "attention"
         : convolutions            ? "convolutions"
                                   : "";
}

// What is computed from the two other ones.
enum class ConvolutionPass { kOutput, kInputGradient, kWeightGradient };
constexpr int kConvolutionPasses = 3;

// x and y (or their gradients) have the channels last: (n, height, width, channels). All begin at
// multiples of 16 bytes.
struct FusedConvolution {
  Convolution convolution;
  DType dtype;  // of x, y and weight: a half float
  int64_t n;    // examples
  ConvolutionPass pass;
  const void* x;
  const void* weight;  // (out_channels, kernel, kernel, in_channels / groups)
  const void* y;
  float* dweight;   // likewise: kWeightGradient's
  void* workspace;  // as many bytes as the queue wanted, from a multiple of 256 bytes on
};

// What is asked of cuDNN, and what cuDNN 9.19 takes on all GPUs of sm_80 and later
// (cudnn_convolution_test). For other even numbers of channels it has kernels, too, but takes up to
// half a minute to compile one, and gradients by weights of 2 and of 4 channels were wrong. So has
// it for kernels of 7; whether that is right was not tried on a GPU.
constexpr int64_t kCudnnChannels = 8, kCudnnKernel = 5;
inline bool CudnnTakes(const Convolution& c) {
  return c.groups == 1 && c.window.kernel <= kCudnnKernel && c.in_channels % kCudnnChannels == 0 &&
         c.out_channels % kCudnnChannels == 0;
}

// An allowance for what it wants of workspace, where no library is asked: the weights in the order
// of its kernels.
inline int64_t CudnnConvolutionWorkspace(const Convolution& c, int64_t /*n*/) {
  return c.out_channels * c.filter() * BytesOf(DType::kFloat16);
}

// Part of a queue that has none. Else: the bytes of workspace that each pass needs, or a negative
// number where a convolution is not one piece of work, which is so for all n or none.
struct NoFusedConvolution {
  int64_t ConvolutionWorkspace(const Convolution&, DType, int64_t /*n*/) const { return -1; }
  void Convolve(const FusedConvolution&) { RUBATO_CHECK(false); }
};

}  // namespace rubato

#endif  // RUBATO_TENSOR_CUDA_FUSED_CONVOLUTION_H_
