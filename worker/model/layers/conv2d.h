#ifndef RUBATO_WORKER_MODEL_LAYERS_CONV2D_H_
#define RUBATO_WORKER_MODEL_LAYERS_CONV2D_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/job.pb.h"
#include "tensor/convolution.h"
#include "worker/model/layers/layer.h"

namespace rubato {

// As torch.nn.Conv2d. Parameters: weight (out_channels, in_channels / groups, kernel, kernel) and,
// with bias, bias (out_channels).
class Conv2dLayer : public Layer {
 public:
  // InvalidArgument if input_shape is not (channels, height, width), if the kernel is larger than
  // the padded input, or groups do not divide the channels.
  static absl::StatusOr<std::unique_ptr<Layer>> Create(const proto::Conv2d& config,
                                                       absl::Span<const int64_t> input_shape);

  Conv2dLayer(const Convolution& convolution, bool bias);

  std::string kind() const override { return "conv2d"; }
  bool BackwardReadsY() const override { return false; }
  int64_t multiplications() const override {
    return SizeOf(output_shape()) * convolution_.filter();
  }
  int64_t scratch_size(const KernelSet& kernels, DType dtype, int64_t n,
                       const LayerOrders& orders) const override {
    return kernels.ConvolutionScratch(In(orders), dtype, n);
  }
  OrderUse order_use() const override { return OrderUse::kAny; }
  // Where it is products of matrices, outputs may lie in either order, and inputs are turned.
  OrderGain ChannelsLastGain(const KernelSet& kernels, DType dtype, int64_t n) const override {
    if (!kernels.ComputesChannelsLast(convolution_, dtype, n)) return {-SizeOf(input_shape()), 0};
    return {SizeOf(input_shape()), SizeOf(output_shape())};
  }
  TurnedFactors turned_factors(const KernelSet& kernels, DType dtype, int64_t n) const override {
    if (!kernels.ComputesChannelsLast(convolution_, dtype, n)) return {};
    return {convolution_.out_channels, convolution_.in_channels / convolution_.groups,
            convolution_.window.kernel * convolution_.window.kernel};
  }
  void Forward(const LayerContext& context, const ConstTensorRef& parameters,
               const ConstTensorRef& x, const TensorRef& y) override;
  void Backward(const LayerContext& context, const ConstTensorRef& parameters,
                const ConstTensorRef& x, const ConstTensorRef& y, const ConstTensorRef& dy,
                const TensorRef& dx, const TensorRef& dparameters) override;

 private:
  Convolution In(const LayerOrders& orders) const {
    Convolution convolution = convolution_;
    convolution.x_order = orders.x;
    convolution.y_order = orders.y;
    return convolution;
  }

  const Convolution convolution_;
  const bool bias_;
};

}  // namespace rubato

#endif  // RUBATO_WORKER_MODEL_LAYERS_CONV2D_H_
