#include "worker/model/layers/dropout.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace rubato {

absl::StatusOr<std::unique_ptr<Layer>> DropoutLayer::Create(const proto::Dropout& config,
                                                            absl::Span<const int64_t> input_shape) {
  if (!(config.p() >= 0 && config.p() < 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("p: found ", config.p(), "; expected at least 0 and below 1"));
  }
  return std::make_unique<DropoutLayer>(config.p(), input_shape);
}

DropoutLayer::DropoutLayer(double p, absl::Span<const int64_t> input_shape)
    : Layer(Shape(input_shape.begin(), input_shape.end()),
            Shape(input_shape.begin(), input_shape.end()), {}),
      p_(p) {}

void DropoutLayer::Forward(const LayerContext& context, const ConstTensorRef&,
                           const ConstTensorRef& x, const TensorRef& y) {
  context.training ? context.kernels->Dropout(context.key, p_, x, y) : context.kernels->Copy(x, y);
}

void DropoutLayer::Backward(const LayerContext& context, const ConstTensorRef&,
                            const ConstTensorRef&, const ConstTensorRef&, const ConstTensorRef& dy,
                            const TensorRef& dx, const TensorRef&) {
  if (dx.is_null()) return;
  context.training ? context.kernels->Dropout(context.key, p_, dy, dx)
                   : context.kernels->Copy(dy, dx);
}

}  // namespace rubato
