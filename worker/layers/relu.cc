#include "worker/layers/relu.h"

#include "tensor/kernels.h"

namespace rubato {

ReluLayer::ReluLayer(absl::Span<const int64_t> input_shape)
    : Layer(Shape(input_shape.begin(), input_shape.end()),
            Shape(input_shape.begin(), input_shape.end()), {}) {}

void ReluLayer::Forward(const ConstTensorRef&, const ConstTensorRef& x, const TensorRef& y) {
  Relu(x, y);
}

void ReluLayer::Backward(const ConstTensorRef&, const ConstTensorRef&, const ConstTensorRef& y,
                         const ConstTensorRef& dy, const TensorRef& dx, const TensorRef&) {
  if (!dx.is_null()) ReluBackward(y, dy, dx);
}

}  // namespace rubato
