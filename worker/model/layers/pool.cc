#include "worker/model/layers/pool.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tensor/convolution.h"
#include "worker/model/layers/window.h"

namespace rubato {
namespace {

Shape PooledShape(absl::Span<const int64_t> input_shape, const Window& window) {
  return {input_shape[0], window.out_height(), window.out_width()};
}

Shape ToShape(absl::Span<const int64_t> shape) { return Shape(shape.begin(), shape.end()); }

// How many values its places have. Of input and output, one may have no order.
int64_t InnerIn(const LayerOrders& orders, int64_t channels) {
  const bool is_last = orders.x == ChannelOrder::kLast || orders.y == ChannelOrder::kLast;
  return is_last ? channels : 1;
}

// A layer's window over planes in these orders.
Window WindowIn(const LayerOrders& orders, int64_t channels, Window window) {
  window.inner = InnerIn(orders, channels);
  return window;
}

class MaxPool2dLayer : public Layer {
 public:
  MaxPool2dLayer(absl::Span<const int64_t> input_shape, const Window& window)
      : Layer(ToShape(input_shape), PooledShape(input_shape, window), {}), window_(window) {}

  std::string kind() const override { return "max_pool2d"; }
  OrderUse order_use() const override { return OrderUse::kSame; }

  void Forward(const LayerContext& context, const ConstTensorRef&, const ConstTensorRef& x,
               const TensorRef& y) override {
    context.kernels->MaxPool2d(In(context.orders), x, y);
  }

  void Backward(const LayerContext& context, const ConstTensorRef&, const ConstTensorRef& x,
                const ConstTensorRef& y, const ConstTensorRef& dy, const TensorRef& dx,
                const TensorRef&) override {
    if (!dx.is_null()) context.kernels->MaxPool2dBackward(In(context.orders), x, y, dy, dx);
  }

 private:
  Window In(const LayerOrders& orders) const { return WindowIn(orders, input_shape()[0], window_); }

  const Window window_;
};

class AvgPool2dLayer : public Layer {
 public:
  AvgPool2dLayer(absl::Span<const int64_t> input_shape, const Window& window, bool count_padding)
      : Layer(ToShape(input_shape), PooledShape(input_shape, window), {}),
        window_(window),
        count_padding_(count_padding) {}

  std::string kind() const override { return "avg_pool2d"; }
  OrderUse order_use() const override { return OrderUse::kSame; }
  bool BackwardReadsX() const override { return false; }
  bool BackwardReadsY() const override { return false; }

  void Forward(const LayerContext& context, const ConstTensorRef&, const ConstTensorRef& x,
               const TensorRef& y) override {
    context.kernels->AvgPool2d(In(context.orders), count_padding_, x, y);
  }

  void Backward(const LayerContext& context, const ConstTensorRef&, const ConstTensorRef&,
                const ConstTensorRef&, const ConstTensorRef& dy, const TensorRef& dx,
                const TensorRef&) override {
    if (!dx.is_null())
      context.kernels->AvgPool2dBackward(In(context.orders), count_padding_, dy, dx);
  }

 private:
  Window In(const LayerOrders& orders) const { return WindowIn(orders, input_shape()[0], window_); }

  const Window window_;
  const bool count_padding_;
};

class AdaptiveAvgPool2dLayer : public Layer {
 public:
  AdaptiveAvgPool2dLayer(absl::Span<const int64_t> input_shape, int64_t size)
      : Layer(ToShape(input_shape), {input_shape[0], size, size}, {}),
        height_(input_shape[1]),
        width_(input_shape[2]),
        size_(size) {}

  std::string kind() const override { return "adaptive_avg_pool2d"; }
  OrderUse order_use() const override { return OrderUse::kSame; }
  bool BackwardReadsX() const override { return false; }
  bool BackwardReadsY() const override { return false; }

  void Forward(const LayerContext& context, const ConstTensorRef&, const ConstTensorRef& x,
               const TensorRef& y) override {
    context.kernels->AdaptiveAvgPool2d(PlanesIn(context.orders), size_, x, y);
  }

  void Backward(const LayerContext& context, const ConstTensorRef&, const ConstTensorRef&,
                const ConstTensorRef&, const ConstTensorRef& dy, const TensorRef& dx,
                const TensorRef&) override {
    if (!dx.is_null())
      context.kernels->AdaptiveAvgPool2dBackward(PlanesIn(context.orders), size_, dy, dx);
  }

 private:
  Planes PlanesIn(const LayerOrders& orders) const {
    return {height_, width_, InnerIn(orders, input_shape()[0])};
  }

  const int64_t height_, width_, size_;
};

// A pooling layer's window. More padding would make windows of nothing else.
template <typename Config>
absl::StatusOr<Window> PoolWindow(const Config& config, absl::Span<const int64_t> input_shape) {
  if (2 * config.padding() > config.kernel_size()) {
    return absl::InvalidArgumentError(absl::StrCat("padding: found ", config.padding(),
                                                   "; expected at most half of kernel_size, ",
                                                   config.kernel_size()));
  }
  return WindowOver(input_shape, config.kernel_size(),
                    config.has_stride() ? config.stride() : config.kernel_size(), config.padding());
}

}  // namespace

absl::StatusOr<std::unique_ptr<Layer>> MakeMaxPool2d(const proto::Pool2d& config,
                                                     absl::Span<const int64_t> input_shape) {
  const absl::StatusOr<Window> window = PoolWindow(config, input_shape);
  if (!window.ok()) return window.status();
  return std::make_unique<MaxPool2dLayer>(input_shape, *window);
}

absl::StatusOr<std::unique_ptr<Layer>> MakeAvgPool2d(const proto::AvgPool2d& config,
                                                     absl::Span<const int64_t> input_shape) {
  const absl::StatusOr<Window> window = PoolWindow(config, input_shape);
  if (!window.ok()) return window.status();
  return std::make_unique<AvgPool2dLayer>(input_shape, *window, config.count_include_pad());
}

absl::StatusOr<std::unique_ptr<Layer>> MakeAdaptiveAvgPool2d(
    const proto::AdaptiveAvgPool2d& config, absl::Span<const int64_t> input_shape) {
  const absl::StatusOr<Window> window = WindowOver(input_shape, 1, 1, 0);
  if (!window.ok()) return window.status();
  return std::make_unique<AdaptiveAvgPool2dLayer>(input_shape, config.output_size());
}

}  // namespace rubato
