#include "worker/model/layers/flatten.h"

namespace rubato {

FlattenLayer::FlattenLayer(absl::Span<const int64_t> input_shape)
    : Layer(Shape(input_shape.begin(), input_shape.end()), {SizeOf(input_shape)}, {}) {}

void FlattenLayer::Forward(const LayerContext& context, const ConstTensorRef&,
                           const ConstTensorRef& x, const TensorRef& y) {
  if (context.orders.x == ChannelOrder::kFirst) return context.kernels->Copy(x, y);
  const int64_t n = x.dim(0), channels = input_shape()[0];
  context.kernels->Turn(x.Reshaped({n, plane(), channels}), y);
}

void FlattenLayer::Backward(const LayerContext& context, const ConstTensorRef&,
                            const ConstTensorRef&, const ConstTensorRef&, const ConstTensorRef& dy,
                            const TensorRef& dx, const TensorRef&) {
  if (dx.is_null()) return;
  if (context.orders.x == ChannelOrder::kFirst) return context.kernels->Copy(dy, dx);
  const int64_t n = dy.dim(0), channels = input_shape()[0];
  context.kernels->Turn(dy.Reshaped({n, channels, plane()}), dx);
}

}  // namespace rubato
