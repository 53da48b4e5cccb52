// Linked where the toolkit had no headers of cuDNN to build with.
#include "absl/status/status.h"
#include "tensor/cuda/attention_library.h"
#include "tensor/cuda/convolution_library.h"

namespace rubato {
namespace {

absl::Status NotBuilt() {
  return absl::FailedPreconditionError(
      "cuDNN is not part of this build: the toolkit had no cudnn_graph.h when it was built");
}

}  // namespace

absl::StatusOr<std::unique_ptr<AttentionLibrary>> OpenCudnnAttention(int, cudaStream_t) {
  return NotBuilt();
}

absl::StatusOr<std::unique_ptr<ConvolutionLibrary>> OpenCudnnConvolution(int, cudaStream_t) {
  return NotBuilt();
}

}  // namespace rubato
