#include "worker/model/layers/activation.h"

#include <string>

#include "tensor/kernel_set.h"

namespace rubato {
namespace {

// A function and its derivative, which is computed from the function's value.
struct Activation {
  const char* kind;
  void (KernelSet::*forward)(const ConstTensorRef& x, const TensorRef& y);
  void (KernelSet::*backward)(const ConstTensorRef& y, const ConstTensorRef& dy,
                              const TensorRef& dx);
  bool in_place;  // whether y may be x, and dx may be dy
};

constexpr Activation kRelu = {"relu", &KernelSet::Relu, &KernelSet::ReluBackward, true};
constexpr Activation kTanh = {"tanh", &KernelSet::Tanh, &KernelSet::TanhBackward, false};
constexpr Activation kSigmoid = {"sigmoid", &KernelSet::Sigmoid, &KernelSet::SigmoidBackward,
                                 false};

class ActivationLayer : public Layer {
 public:
  ActivationLayer(const Activation& activation, absl::Span<const int64_t> input_shape)
      : Layer(Shape(input_shape.begin(), input_shape.end()),
              Shape(input_shape.begin(), input_shape.end()), {}),
        activation_(activation) {}

  std::string kind() const override { return activation_.kind; }
  OrderUse order_use() const override { return OrderUse::kSame; }
  bool BackwardReadsX() const override { return false; }
  bool MayRunInPlace() const override { return activation_.in_place; }

  void Forward(const LayerContext& context, const ConstTensorRef&, const ConstTensorRef& x,
               const TensorRef& y) override {
    (context.kernels->*activation_.forward)(x, y);
  }

  void Backward(const LayerContext& context, const ConstTensorRef&, const ConstTensorRef&,
                const ConstTensorRef& y, const ConstTensorRef& dy, const TensorRef& dx,
                const TensorRef&) override {
    if (dx.is_null()) return;
    (context.kernels->*activation_.backward)(y, dy, dx);
  }

 private:
  const Activation activation_;
};

// Keeps the derivative, which costs little beside the value, in place of x.
class GeluLayer : public Layer {
 public:
  GeluLayer(GeluForm form, absl::Span<const int64_t> input_shape)
      : Layer(Shape(input_shape.begin(), input_shape.end()),
              Shape(input_shape.begin(), input_shape.end()), {}),
        form_(form) {}

  std::string kind() const override { return "gelu"; }
  OrderUse order_use() const override { return OrderUse::kSame; }
  bool BackwardReadsX() const override { return false; }
  bool BackwardReadsY() const override { return false; }
  bool MayRunInPlace() const override { return true; }
  int64_t saved_size(const KernelSet&, DType, int64_t n) const override {
    return n * SizeOf(input_shape());
  }

  void Forward(const LayerContext& context, const ConstTensorRef&, const ConstTensorRef& x,
               const TensorRef& y) override {
    context.training ? context.kernels->GeluWithDerivative(form_, x, y, context.saved)
                     : context.kernels->Gelu(form_, x, y);
  }

  void Backward(const LayerContext& context, const ConstTensorRef&, const ConstTensorRef&,
                const ConstTensorRef&, const ConstTensorRef& dy, const TensorRef& dx,
                const TensorRef&) override {
    if (!dx.is_null()) context.kernels->Multiply(context.saved, dy, dx);
  }

 private:
  const GeluForm form_;
};

}  // namespace

std::unique_ptr<Layer> MakeRelu(absl::Span<const int64_t> input_shape) {
  return std::make_unique<ActivationLayer>(kRelu, input_shape);
}

std::unique_ptr<Layer> MakeGelu(const proto::Gelu& config, absl::Span<const int64_t> input_shape) {
  const bool by_tanh = config.approximate() == proto::Gelu::APPROXIMATE_TANH;
  return std::make_unique<GeluLayer>(by_tanh ? GeluForm::kTanh : GeluForm::kExact, input_shape);
}

std::unique_ptr<Layer> MakeTanh(absl::Span<const int64_t> input_shape) {
  return std::make_unique<ActivationLayer>(kTanh, input_shape);
}

std::unique_ptr<Layer> MakeSigmoid(absl::Span<const int64_t> input_shape) {
  return std::make_unique<ActivationLayer>(kSigmoid, input_shape);
}

}  // namespace rubato
