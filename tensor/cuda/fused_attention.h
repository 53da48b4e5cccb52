// What attention as one piece of work is asked for: of cuDNN on a GPU, of plain loops in its
// emulation.
#ifndef RUBATO_TENSOR_CUDA_FUSED_ATTENTION_H_
#define RUBATO_TENSOR_CUDA_FUSED_ATTENTION_H_

#include <cstdint>

#include "common/base/check.h"
#include "tensor/attention.h"

namespace rubato {

// How attention is computed: as products and a softmax, or in one piece of work where it can be.
enum class AttentionForm { kProducts, kFused };

// Forward, or backward if it has a dx. Scores stay on the chip; of a row of them one number is
// kept, by which backward finds its probabilities again. Operands lie as
// ScaledDotProductAttention's.
struct FusedAttention {
  Attention attention;
  int64_t n;  // examples
  const void* x;
  void* y;
  // (n, heads, places): the logarithm of the sum of a row's exponentials, which forward writes.
  float* statistics;
  const void* dy;   // backward's; null forward
  void* dx;         // likewise
  void* workspace;  // as many bytes as the queue wanted
};

// What cuDNN 9.19 wants on sm_80, sm_90 and sm_120 for a backward that is the same each time: room
// for the gradient by all scores, of whole tiles of 64 places, and for a sum a row
// (cudnn_attention_test).
inline int64_t CudnnAttentionWorkspace(const Attention& attention, int64_t n) {
  const int64_t places = (attention.places + 63) / 64 * 64;
  return n * attention.heads * places * (places * BytesOf(attention.dtype) + 4);
}

// Part of a queue that has none. Else: the bytes of workspace that both directions need, or a
// negative number where attention is not one piece of work, which is so for all n or none.
struct NoFusedAttention {
  int64_t AttentionWorkspace(const Attention&, int64_t /*n*/) const { return -1; }
  void Attend(const FusedAttention&) { RUBATO_CHECK(false); }
};

}  // namespace rubato

#endif  // RUBATO_TENSOR_CUDA_FUSED_ATTENTION_H_
