#include "worker/layers/flatten.h"

#include "tensor/kernels.h"

namespace rubato {

FlattenLayer::FlattenLayer(absl::Span<const int64_t> input_shape)
    : Layer(Shape(input_shape.begin(), input_shape.end()), {SizeOf(input_shape)}, {}) {}

void FlattenLayer::Forward(const LayerContext&, const ConstTensorRef&, const ConstTensorRef& x,
                           const TensorRef& y) {
  Copy(x, y);
}

void FlattenLayer::Backward(const LayerContext&, const ConstTensorRef&, const ConstTensorRef&,
                            const ConstTensorRef&, const ConstTensorRef& dy, const TensorRef& dx,
                            const TensorRef&) {
  if (!dx.is_null()) Copy(dy, dx);
}

}  // namespace rubato
