#ifndef RUBATO_WORKER_LAYERS_LINEAR_H_
#define RUBATO_WORKER_LAYERS_LINEAR_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/job.pb.h"
#include "worker/layer.h"

namespace rubato {

// y = x W^T + b, as torch.nn.Linear. x: (n, in_features), W: (out_features, in_features),
// b: (out_features), y: (n, out_features). Both are drawn from U(-1/sqrt(in), 1/sqrt(in)).
class LinearLayer : public Layer {
 public:
  // InvalidArgument if the input has not one dimension, or if out_features is out of range.
  static absl::StatusOr<std::unique_ptr<Layer>> Create(const proto::Linear& config,
                                                       absl::Span<const int64_t> input_shape);

  LinearLayer(int64_t in_features, int64_t out_features, bool bias);

  std::string kind() const override { return "linear"; }
  void Forward(const LayerContext& context, const ConstTensorRef& parameters,
               const ConstTensorRef& x, const TensorRef& y) override;
  void Backward(const LayerContext& context, const ConstTensorRef& parameters,
                const ConstTensorRef& x, const ConstTensorRef& y, const ConstTensorRef& dy,
                const TensorRef& dx, const TensorRef& dparameters) override;

 private:
  const int64_t in_;
  const int64_t out_;
  const bool bias_;
};

}  // namespace rubato

#endif  // RUBATO_WORKER_LAYERS_LINEAR_H_
