#include "tensor/cuda/cudnn_attention.h"
#include "tensor/cuda/cudnn_convolution.h"
#include "tensor/cuda/cudnn_plans.h"

namespace rubato {

absl::StatusOr<std::unique_ptr<AttentionLibrary>> OpenCudnnAttention(int major,
                                                                     cudaStream_t stream) {
  return OpenOnCudnn<CudnnAttention>(major, stream);
}

absl::StatusOr<std::unique_ptr<ConvolutionLibrary>> OpenCudnnConvolution(int major,
                                                                         cudaStream_t stream) {
  return OpenOnCudnn<CudnnConvolution>(major, stream);
}

}  // namespace rubato
