#include "worker/model/layers/flatten.h"

namespace rubato {

FlattenLayer::FlattenLayer(absl::Span<const int64_t> input_shape)
    : Layer(Shape(input_shape.begin(), input_shape.end()), {SizeOf(input_shape)}, {}) {}

void FlattenLayer::Forward(const LayerContext& context, const ConstTensorRef&,
                           const ConstTensorRef& x, const TensorRef& y) {
  context.kernels->Copy(x, y);
}

void FlattenLayer::Backward(const LayerContext& context, const ConstTensorRef&,
                            const ConstTensorRef&, const ConstTensorRef&, const ConstTensorRef& dy,
                            const TensorRef& dx, const TensorRef&) {
  if (!dx.is_null()) context.kernels->Copy(dy, dx);
}

}  // namespace rubato
