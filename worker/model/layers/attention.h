#ifndef RUBATO_WORKER_MODEL_LAYERS_ATTENTION_H_
#define RUBATO_WORKER_MODEL_LAYERS_ATTENTION_H_

#include <string>

#include "worker/model/layers/layer.h"

namespace rubato {

// Scaled dot-product attention of several heads, without the projections around it: (places, 3
// channels), queries, keys and values of each place, to (places, channels).
class AttentionCore : public Layer {
 public:
  // heads divides channels.
  AttentionCore(int64_t places, int64_t channels, int64_t heads, bool causal)
      : Layer({places, 3 * channels}, {places, channels}, {}), heads_(heads), causal_(causal) {}

  std::string kind() const override { return "attention"; }
  int64_t multiplications() const override { return 2 * input_shape()[0] * SizeOf(output_shape()); }
  int64_t saved_size(const KernelSet& kernels, DType dtype, int64_t n) const override {
    return kernels.MemoryOf(Of(dtype), n).saved;
  }
  int64_t scratch_size(const KernelSet& kernels, DType dtype, int64_t n,
                       const LayerOrders&) const override {
    return kernels.MemoryOf(Of(dtype), n).scratch;
  }

  void Forward(const LayerContext& context, const ConstTensorRef&, const ConstTensorRef& x,
               const TensorRef& y) override {
    context.kernels->ScaledDotProductAttention(heads_, causal_, x, y, context.saved,
                                               context.scratch);
  }

  void Backward(const LayerContext& context, const ConstTensorRef&, const ConstTensorRef& x,
                const ConstTensorRef& y, const ConstTensorRef& dy, const TensorRef& dx,
                const TensorRef&) override {
    if (dx.is_null()) return;
    context.kernels->ScaledDotProductAttentionBackward(heads_, causal_, x, y, context.saved, dy, dx,
                                                       context.scratch);
  }

 private:
  Attention Of(DType dtype) const {
    return {heads_, input_shape()[0], output_shape()[1], causal_, dtype};
  }

  const int64_t heads_;
  const bool causal_;
};

}  // namespace rubato

#endif  // RUBATO_WORKER_MODEL_LAYERS_ATTENTION_H_
