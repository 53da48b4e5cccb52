// Linked where the toolkit had no headers of cuDNN to build with.
#include "absl/status/status.h"
#include "tensor/cuda/attention_library.h"

namespace rubato {

absl::StatusOr<std::unique_ptr<AttentionLibrary>> OpenCudnnAttention(int, cudaStream_t) {
  return absl::FailedPreconditionError(
      "cuDNN is not part of this build: the toolkit had no cudnn_graph.h when it was built");
}

}  // namespace rubato
