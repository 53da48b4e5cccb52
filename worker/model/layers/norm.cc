#include "worker/model/layers/norm.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "worker/model/layers/parameter.h"

namespace rubato {
namespace {

Shape ToShape(absl::Span<const int64_t> shape) { return Shape(shape.begin(), shape.end()); }

// What the three have in common: weight and bias of one shape, or neither.
class NormLayer : public Layer {
 public:
  bool BackwardReadsY() const override { return false; }
  bool SavesStatistics() const override { return true; }

 protected:
  NormLayer(absl::Span<const int64_t> input_shape, absl::Span<const int64_t> affine, bool is_affine,
            double eps)
      : Layer(ToShape(input_shape), ToShape(input_shape), Declare(affine, is_affine)),
        eps_(eps),
        affine_(is_affine ? SizeOf(affine) : 0) {}

  // Weight or bias, or null.
  template <typename Ref>
  Ref Weight(const Ref& parameters) const {
    return affine_ > 0 ? parameters.Slice(0, {affine_}) : Ref();
  }
  template <typename Ref>
  Ref Bias(const Ref& parameters) const {
    return affine_ > 0 ? parameters.Slice(affine_, {affine_}) : Ref();
  }
  // The same under another shape, null as null.
  template <typename Ref>
  static Ref As(const Ref& tensor, const Shape& shape) {
    return tensor.is_null() ? tensor : tensor.Reshaped(shape);
  }
  // (n, channels, plane).
  Shape Planes(const ConstTensorRef& x) const {
    const int64_t channels = input_shape()[0];
    return {x.dim(0), channels, SizeOf(input_shape()) / channels};
  }

  const double eps_;

 private:
  static std::vector<proto::Parameter> Declare(absl::Span<const int64_t> shape, bool is_affine) {
    if (!is_affine) return {};
    return {ConstantParameter("weight", shape, 1), ConstantParameter("bias", shape, 0)};
  }

  const int64_t affine_;
};

class LayerNormLayer : public NormLayer {
 public:
  LayerNormLayer(const proto::LayerNorm& config, absl::Span<const int64_t> input_shape)
      : NormLayer(input_shape, input_shape.last(config.dimensions()), config.elementwise_affine(),
                  config.eps()),
        columns_(SizeOf(input_shape.last(config.dimensions()))) {}

  std::string kind() const override { return "layer_norm"; }
  int64_t saved_size(const KernelSet&, DType, int64_t n) const override {
    return 2 * n * (SizeOf(input_shape()) / columns_);
  }

  void Forward(const LayerContext& context, const ConstTensorRef& parameters,
               const ConstTensorRef& x, const TensorRef& y) override {
    context.kernels->LayerNorm(x.Reshaped(Rows(x)), Weight(parameters), Bias(parameters), eps_, y,
                               context.saved);
  }

  void Backward(const LayerContext& context, const ConstTensorRef& parameters,
                const ConstTensorRef& x, const ConstTensorRef&, const ConstTensorRef& dy,
                const TensorRef& dx, const TensorRef& dparameters) override {
    context.kernels->LayerNormBackward(x.Reshaped(Rows(x)), Weight(parameters), context.saved, dy,
                                       dx, Weight(dparameters), Bias(dparameters));
  }

 private:
  Shape Rows(const ConstTensorRef& x) const { return {x.size() / columns_, columns_}; }

  const int64_t columns_;
};

class GroupNormLayer : public NormLayer {
 public:
  GroupNormLayer(const proto::GroupNorm& config, absl::Span<const int64_t> input_shape)
      : NormLayer(input_shape, input_shape.first(1), config.affine(), config.eps()),
        groups_(config.num_groups()) {}

  std::string kind() const override { return "group_norm"; }
  int64_t saved_size(const KernelSet&, DType, int64_t n) const override { return 2 * n * groups_; }

  void Forward(const LayerContext& context, const ConstTensorRef& parameters,
               const ConstTensorRef& x, const TensorRef& y) override {
    context.kernels->GroupNorm(groups_, x.Reshaped(Planes(x)), Weight(parameters), Bias(parameters),
                               eps_, y, context.saved);
  }

  void Backward(const LayerContext& context, const ConstTensorRef& parameters,
                const ConstTensorRef& x, const ConstTensorRef&, const ConstTensorRef& dy,
                const TensorRef& dx, const TensorRef& dparameters) override {
    context.kernels->GroupNormBackward(groups_, x.Reshaped(Planes(x)), Weight(parameters),
                                       context.saved, dy, dx, Weight(dparameters),
                                       Bias(dparameters));
  }

 private:
  const int64_t groups_;
};

class BatchNormLayer : public NormLayer {
 public:
  BatchNormLayer(const proto::BatchNorm& config, absl::Span<const int64_t> input_shape)
      : NormLayer(input_shape, input_shape.first(1), config.affine(), config.eps()),
        channels_(input_shape[0]),
        momentum_(config.momentum()) {}

  std::string kind() const override { return "batch_norm"; }
  OrderUse order_use() const override { return OrderUse::kSame; }
  int64_t saved_size(const KernelSet&, DType, int64_t) const override { return 2 * channels_; }

  std::vector<proto::Parameter> buffers() const override {
    std::vector<proto::Parameter> buffers = {ConstantParameter("running_mean", {channels_}, 0),
                                             ConstantParameter("running_var", {channels_}, 1)};
    for (proto::Parameter& buffer : buffers) buffer.set_average(momentum_);
    return buffers;
  }

  void Forward(const LayerContext& context, const ConstTensorRef& parameters,
               const ConstTensorRef& x, const TensorRef& y) override {
    const ConstTensorRef planes = x.Reshaped(PlanesIn(context.orders.x, x));
    if (!context.training) {
      context.kernels->BatchNormByStatistics(
          planes, Weight(parameters), Bias(parameters), context.buffers.Slice(0, {channels_}),
          context.buffers.Slice(channels_, {channels_}), eps_, y);
      return;
    }
    context.kernels->BatchNorm(planes, Weight(parameters), Bias(parameters), eps_, y, context.saved,
                               x.dim(0), context.statistics);
  }

  void Backward(const LayerContext& context, const ConstTensorRef& parameters,
                const ConstTensorRef& x, const ConstTensorRef&, const ConstTensorRef& dy,
                const TensorRef& dx, const TensorRef& dparameters) override {
    context.kernels->BatchNormBackward(x.Reshaped(PlanesIn(context.orders.x, x)),
                                       Weight(parameters), context.saved, dy, dx,
                                       Weight(dparameters), Bias(dparameters));
  }

 private:
  // Where channels are last, places are examples of one place.
  Shape PlanesIn(ChannelOrder order, const ConstTensorRef& x) const {
    const Shape planes = Planes(x);
    return order == ChannelOrder::kFirst ? planes : Shape{planes[0] * planes[2], planes[1], 1};
  }

  const int64_t channels_;
  const double momentum_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Layer>> MakeLayerNorm(const proto::LayerNorm& config,
                                                     absl::Span<const int64_t> input_shape) {
  if (config.dimensions() > static_cast<int64_t>(input_shape.size())) {
    return absl::InvalidArgumentError(absl::StrCat("dimensions: found ", config.dimensions(),
                                                   "; expected at most those of the input, ",
                                                   ShapeText(input_shape)));
  }
  return std::make_unique<LayerNormLayer>(config, input_shape);
}

absl::StatusOr<std::unique_ptr<Layer>> MakeGroupNorm(const proto::GroupNorm& config,
                                                     absl::Span<const int64_t> input_shape) {
  if (input_shape[0] % config.num_groups() != 0) {
    return absl::InvalidArgumentError(absl::StrCat("num_groups: found ", config.num_groups(),
                                                   "; expected a divisor of the channels, ",
                                                   input_shape[0]));
  }
  return std::make_unique<GroupNormLayer>(config, input_shape);
}

absl::StatusOr<std::unique_ptr<Layer>> MakeBatchNorm(const proto::BatchNorm& config,
                                                     absl::Span<const int64_t> input_shape) {
  if (input_shape.size() != 1 && input_shape.size() != 3) {
    return absl::InvalidArgumentError(
        absl::StrCat("input has shape ", ShapeText(input_shape),
                     "; expected (features) or (channels, height, width)"));
  }
  return std::make_unique<BatchNormLayer>(config, input_shape);
}

}  // namespace rubato
