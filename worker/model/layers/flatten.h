#ifndef RUBATO_WORKER_MODEL_LAYERS_FLATTEN_H_
#define RUBATO_WORKER_MODEL_LAYERS_FLATTEN_H_

#include <string>

#include "absl/types/span.h"
#include "worker/model/layers/layer.h"

namespace rubato {

// (n, ...) to (n, product of the rest), as torch.nn.Flatten.
class FlattenLayer : public Layer {
 public:
  explicit FlattenLayer(absl::Span<const int64_t> input_shape);

  std::string kind() const override { return "flatten"; }
  bool OutputIsInput() const override { return true; }
  OrderUse order_use() const override { return OrderUse::kAny; }
  // Features are those of channels that are first.
  OrderGain ChannelsLastGain(const KernelSet&, DType, int64_t) const override {
    return {-SizeOf(input_shape()), 0};
  }
  bool BackwardReadsX() const override { return false; }
  bool BackwardReadsY() const override { return false; }
  void Forward(const LayerContext& context, const ConstTensorRef& parameters,
               const ConstTensorRef& x, const TensorRef& y) override;
  void Backward(const LayerContext& context, const ConstTensorRef& parameters,
                const ConstTensorRef& x, const ConstTensorRef& y, const ConstTensorRef& dy,
                const TensorRef& dx, const TensorRef& dparameters) override;

 private:
  int64_t plane() const { return SizeOf(input_shape()) / input_shape()[0]; }
};

}  // namespace rubato

#endif  // RUBATO_WORKER_MODEL_LAYERS_FLATTEN_H_
