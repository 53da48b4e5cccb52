#include "worker/layers/activation.h"

#include <string>

#include "tensor/kernels.h"

namespace rubato {
namespace {

// A function and its derivative, by which it is x or y that the derivative is computed from.
struct Activation {
  const char* kind;
  void (*forward)(const ConstTensorRef& x, const TensorRef& y);
  void (*backward)(const ConstTensorRef& from, const ConstTensorRef& dy, const TensorRef& dx);
  enum { kFromX, kFromY } backward_from;
  bool in_place;  // whether y may be x, and dx may be dy
};

constexpr Activation kRelu = {"relu", Relu, ReluBackward, Activation::kFromY, true};
constexpr Activation kTanh = {"tanh", Tanh, TanhBackward, Activation::kFromY, false};
constexpr Activation kSigmoid = {"sigmoid", Sigmoid, SigmoidBackward, Activation::kFromY, false};

template <GeluForm kForm>
constexpr Activation kGelu = {
    "gelu", [](const ConstTensorRef& x, const TensorRef& y) { Gelu(kForm, x, y); },
    [](const ConstTensorRef& x, const ConstTensorRef& dy, const TensorRef& dx) {
      GeluBackward(kForm, x, dy, dx);
    },
    Activation::kFromX, false};

class ActivationLayer : public Layer {
 public:
  ActivationLayer(const Activation& activation, absl::Span<const int64_t> input_shape)
      : Layer(Shape(input_shape.begin(), input_shape.end()),
              Shape(input_shape.begin(), input_shape.end()), {}),
        activation_(activation) {}

  std::string kind() const override { return activation_.kind; }
  bool BackwardReadsX() const override { return activation_.backward_from == Activation::kFromX; }
  bool BackwardReadsY() const override { return activation_.backward_from == Activation::kFromY; }
  bool MayRunInPlace() const override { return activation_.in_place; }

  void Forward(const LayerContext&, const ConstTensorRef&, const ConstTensorRef& x,
               const TensorRef& y) override {
    activation_.forward(x, y);
  }

  void Backward(const LayerContext&, const ConstTensorRef&, const ConstTensorRef& x,
                const ConstTensorRef& y, const ConstTensorRef& dy, const TensorRef& dx,
                const TensorRef&) override {
    if (dx.is_null()) return;
    activation_.backward(activation_.backward_from == Activation::kFromX ? x : y, dy, dx);
  }

 private:
  const Activation activation_;
};

}  // namespace

std::unique_ptr<Layer> MakeRelu(absl::Span<const int64_t> input_shape) {
  return std::make_unique<ActivationLayer>(kRelu, input_shape);
}

std::unique_ptr<Layer> MakeGelu(const proto::Gelu& config, absl::Span<const int64_t> input_shape) {
  const bool by_tanh = config.approximate() == proto::Gelu::APPROXIMATE_TANH;
  return std::make_unique<ActivationLayer>(
      by_tanh ? kGelu<GeluForm::kTanh> : kGelu<GeluForm::kExact>, input_shape);
}

std::unique_ptr<Layer> MakeTanh(absl::Span<const int64_t> input_shape) {
  return std::make_unique<ActivationLayer>(kTanh, input_shape);
}

std::unique_ptr<Layer> MakeSigmoid(absl::Span<const int64_t> input_shape) {
  return std::make_unique<ActivationLayer>(kSigmoid, input_shape);
}

}  // namespace rubato
