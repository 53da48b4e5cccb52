#include "worker/model/layers/linear.h"

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "worker/model/layers/parameter.h"

namespace rubato {
namespace {

// The BLAS library counts rows and columns in 32 bits.
constexpr int64_t kMaxFeatures = std::numeric_limits<int32_t>::max();

std::vector<proto::Parameter> Declare(int64_t in, int64_t out,
                                      const LinearLayer::Parameters& parameters) {
  std::vector<proto::Parameter> declared = {
      UniformParameter(parameters.weight, {out, in}, parameters.weight_bound)};
  if (parameters.bias != nullptr) {
    declared.push_back(UniformParameter(parameters.bias, {out}, parameters.bias_bound));
  }
  return declared;
}

Shape OutputShape(absl::Span<const int64_t> input_shape, int64_t out_features) {
  Shape shape(input_shape.begin(), input_shape.end());
  shape.back() = out_features;
  return shape;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Layer>> LinearLayer::Create(const proto::Linear& config,
                                                           absl::Span<const int64_t> input_shape) {
  if (input_shape.size() != 1 && input_shape.size() != 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("input has shape ", ShapeText(input_shape),
                     "; expected one dimension: put flatten before it"));
  }
  const int64_t in = input_shape.back();
  for (const auto& [what, features] :
       {std::pair("input features", in), std::pair("out_features", config.out_features())}) {
    if (features < 1 || features > kMaxFeatures) {
      return absl::InvalidArgumentError(
          absl::StrCat(what, ": found ", features, "; expected 1 to ", kMaxFeatures));
    }
  }
  // PyTorch's default: kaiming_uniform_ with a = sqrt(5) is U(±1/sqrt(in)), which is also what
  // torch.nn.Linear draws the bias from.
  const double bound = 1 / std::sqrt(static_cast<double>(in));
  return std::make_unique<LinearLayer>(
      input_shape, config.out_features(),
      Parameters{"weight", config.bias() ? "bias" : nullptr, bound, bound});
}

LinearLayer::LinearLayer(absl::Span<const int64_t> input_shape, int64_t out_features,
                         const Parameters& parameters)
    : Layer(Shape(input_shape.begin(), input_shape.end()), OutputShape(input_shape, out_features),
            Declare(input_shape.back(), out_features, parameters)),
      in_(input_shape.back()),
      out_(out_features),
      bias_(parameters.bias != nullptr) {}

void LinearLayer::Forward(const LayerContext& context, const ConstTensorRef& parameters,
                          const ConstTensorRef& x, const TensorRef& y) {
  const int64_t rows = x.size() / in_;
  context.kernels->Linear(x.Reshaped({rows, in_}), parameters.Slice(0, {out_, in_}),
                          bias_ ? parameters.Slice(out_ * in_, {out_}) : ConstTensorRef(),
                          y.Reshaped({rows, out_}));
}

void LinearLayer::Backward(const LayerContext& context, const ConstTensorRef& parameters,
                           const ConstTensorRef& x, const ConstTensorRef&, const ConstTensorRef& dy,
                           const TensorRef& dx, const TensorRef& dparameters) {
  const int64_t rows = x.size() / in_;
  context.kernels->LinearBackward(
      x.Reshaped({rows, in_}), parameters.Slice(0, {out_, in_}), dy.Reshaped({rows, out_}),
      dx.is_null() ? dx : dx.Reshaped({rows, in_}), dparameters.Slice(0, {out_, in_}),
      bias_ ? dparameters.Slice(out_ * in_, {out_}) : TensorRef());
}

}  // namespace rubato
