#ifndef RUBATO_WORKER_LAYERS_RELU_H_
#define RUBATO_WORKER_LAYERS_RELU_H_

#include <string>

#include "absl/types/span.h"
#include "worker/layer.h"

namespace rubato {

// max(x, 0) of each value, as torch.nn.ReLU; the gradient at 0 is 0.
class ReluLayer : public Layer {
 public:
  explicit ReluLayer(absl::Span<const int64_t> input_shape);

  std::string kind() const override { return "relu"; }
  void Forward(const ConstTensorRef& parameters, const ConstTensorRef& x,
               const TensorRef& y) override;
  void Backward(const ConstTensorRef& parameters, const ConstTensorRef& x,
                const ConstTensorRef& y, const ConstTensorRef& dy, const TensorRef& dx,
                const TensorRef& dparameters) override;
};

}  // namespace rubato

#endif  // RUBATO_WORKER_LAYERS_RELU_H_
