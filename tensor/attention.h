// What a transformer needs besides products of matrices. Types, bits and shapes as in
// tensor/kernels.h.
#ifndef RUBATO_TENSOR_ATTENTION_H_
#define RUBATO_TENSOR_ATTENTION_H_

#include <cstdint>

#include "tensor/tensor.h"

namespace rubato {

// A layer of it, as the next two functions have it, on values of `dtype`.
struct Attention {
  int64_t heads, places, channels;
  bool causal;
  DType dtype;
};

// Scaled dot-product attention of several heads: Vaswani et al., "Attention is all you need", 2017,
// eq. 1. x: (n, places, 3 channels), each place's queries, keys and values behind one another, a
// head having channels / heads of each; y: (n, places, channels). With `causal` a place sees itself
// and those before it only. `probabilities` (n, heads, places, places) receives the softmax of the
// scores, for the next function.
void ScaledDotProductAttention(int64_t heads, bool causal, const ConstTensorRef& x,
                               const TensorRef& y, const TensorRef& probabilities);
// scratch: (places, places).
void ScaledDotProductAttentionBackward(int64_t heads, bool causal, const ConstTensorRef& x,
                                       const ConstTensorRef& probabilities,
                                       const ConstTensorRef& dy, const TensorRef& dx,
                                       const TensorRef& scratch);

// y[i] = the row of `weight` (count, channels) that x[i], a whole number in [0, count), says. x:
// (rows), y: (rows, channels). dweight adds up the rows of dy in turn.
void Embed(const ConstTensorRef& x, const ConstTensorRef& weight, const TensorRef& y);
void EmbedBackward(const ConstTensorRef& x, const ConstTensorRef& dy, const TensorRef& dweight);

// y[i, j] = x[i, j] + bias[j], and the sums over i of dy[i, j] (ColumnSums): bias (columns).
void AddRow(const ConstTensorRef& x, const ConstTensorRef& bias, const TensorRef& y);

// z = x + y. z may be x or y.
void AddTensors(const ConstTensorRef& x, const ConstTensorRef& y, const TensorRef& z);

}  // namespace rubato

#endif  // RUBATO_TENSOR_ATTENTION_H_
