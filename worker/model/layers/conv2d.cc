#include "worker/model/layers/conv2d.h"

#include <cmath>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "worker/model/layers/parameter.h"
#include "worker/model/layers/window.h"

namespace rubato {
namespace {

// PyTorch's default, as for torch.nn.Linear: U(±1/sqrt(values of a filter)).
std::vector<proto::Parameter> Declare(const Convolution& c, bool bias) {
  const double bound = 1 / std::sqrt(static_cast<double>(c.filter()));
  const int64_t kernel = c.window.kernel;
  std::vector<proto::Parameter> declared = {UniformParameter(
      "weight", {c.out_channels, c.in_channels / c.groups, kernel, kernel}, bound)};
  if (bias) declared.push_back(UniformParameter("bias", {c.out_channels}, bound));
  return declared;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Layer>> Conv2dLayer::Create(const proto::Conv2d& config,
                                                           absl::Span<const int64_t> input_shape) {
  absl::StatusOr<Window> window =
      WindowOver(input_shape, config.kernel_size(), config.stride(), config.padding());
  if (!window.ok()) return window.status();
  const Convolution convolution = {*window, input_shape[0], config.out_channels(), config.groups()};
  for (const auto& [what, channels] : {std::pair("input's channels, ", input_shape[0]),
                                       std::pair("out_channels, ", config.out_channels())}) {
    if (channels % config.groups() != 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "groups: found ", config.groups(), "; expected a divisor of the ", what, channels));
    }
  }
  return std::make_unique<Conv2dLayer>(convolution, config.bias());
}

Conv2dLayer::Conv2dLayer(const Convolution& c, bool bias)
    : Layer({c.in_channels, c.window.height, c.window.width},
            {c.out_channels, c.window.out_height(), c.window.out_width()}, Declare(c, bias)),
      convolution_(c),
      bias_(bias) {}

void Conv2dLayer::Forward(const LayerContext& context, const ConstTensorRef& parameters,
                          const ConstTensorRef& x, const TensorRef& y) {
  const int64_t weights = convolution_.out_channels * convolution_.filter();
  context.kernels->Conv2d(
      In(context.orders), x, parameters.Slice(0, {weights}),
      bias_ ? parameters.Slice(weights, {convolution_.out_channels}) : ConstTensorRef(), y,
      context.scratch);
}

void Conv2dLayer::Backward(const LayerContext& context, const ConstTensorRef& parameters,
                           const ConstTensorRef& x, const ConstTensorRef&, const ConstTensorRef& dy,
                           const TensorRef& dx, const TensorRef& dparameters) {
  const int64_t weights = convolution_.out_channels * convolution_.filter();
  context.kernels->Conv2dBackward(
      In(context.orders), x, parameters.Slice(0, {weights}), dy, dx,
      dparameters.Slice(0, {weights}),
      bias_ ? dparameters.Slice(weights, {convolution_.out_channels}) : TensorRef(),
      context.scratch);
}

}  // namespace rubato
