#include "worker/layers/linear.h"

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tensor/kernels.h"

namespace rubato {
namespace {

// The BLAS library counts rows and columns in 32 bits.
constexpr int64_t kMaxFeatures = std::numeric_limits<int32_t>::max();

proto::Parameter Uniform(const char* name, std::initializer_list<int64_t> shape, double bound) {
  proto::Parameter parameter;
  parameter.set_name(name);
  for (int64_t dim : shape) parameter.add_shape(dim);
  parameter.mutable_init()->set_uniform_bound(bound);
  return parameter;
}

// PyTorch's default: kaiming_uniform_ with a = sqrt(5) is U(±1/sqrt(in)), which is also what
// torch.nn.Linear draws the bias from.
std::vector<proto::Parameter> Parameters(int64_t in, int64_t out, bool bias) {
  const double bound = 1 / std::sqrt(static_cast<double>(in));
  std::vector<proto::Parameter> parameters = {Uniform("weight", {out, in}, bound)};
  if (bias) parameters.push_back(Uniform("bias", {out}, bound));
  return parameters;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Layer>> LinearLayer::Create(const proto::Linear& config,
                                                           absl::Span<const int64_t> input_shape) {
  if (input_shape.size() != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("input has shape ", ShapeText(input_shape),
                     "; expected one dimension: put flatten before it"));
  }
  for (const auto& [what, features] : {std::make_pair("input features", input_shape[0]),
                                       std::make_pair("out_features", config.out_features())}) {
    if (features < 1 || features > kMaxFeatures) {
      return absl::InvalidArgumentError(
          absl::StrCat(what, ": found ", features, "; expected 1 to ", kMaxFeatures));
    }
  }
  return std::make_unique<LinearLayer>(input_shape[0], config.out_features(), config.bias());
}

LinearLayer::LinearLayer(int64_t in_features, int64_t out_features, bool bias)
    : Layer({in_features}, {out_features}, Parameters(in_features, out_features, bias)),
      in_(in_features),
      out_(out_features),
      bias_(bias) {}

void LinearLayer::Forward(const LayerContext&, const ConstTensorRef& parameters,
                          const ConstTensorRef& x, const TensorRef& y) {
  const ConstTensorRef weight = parameters.Slice(0, {out_, in_});
  MatMul(x, Transpose::kNo, weight, Transpose::kYes, y);
  if (bias_) AddBias(parameters.Slice(out_ * in_, {out_}), y);
}

void LinearLayer::Backward(const LayerContext&, const ConstTensorRef& parameters,
                           const ConstTensorRef& x, const ConstTensorRef&, const ConstTensorRef& dy,
                           const TensorRef& dx, const TensorRef& dparameters) {
  MatMul(dy, Transpose::kYes, x, Transpose::kNo, dparameters.Slice(0, {out_, in_}));
  if (bias_) ColumnSums(dy, dparameters.Slice(out_ * in_, {out_}));
  if (!dx.is_null()) {
    MatMul(dy, Transpose::kNo, parameters.Slice(0, {out_, in_}), Transpose::kNo, dx);
  }
}

}  // namespace rubato
