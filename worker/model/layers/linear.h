#ifndef RUBATO_WORKER_MODEL_LAYERS_LINEAR_H_
#define RUBATO_WORKER_MODEL_LAYERS_LINEAR_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/job.pb.h"
#include "worker/model/layers/layer.h"

namespace rubato {

// y = x W^T + b, as torch.nn.Linear; of each place, where x has places. Parameters: weight (out,
// in) and, with bias, bias (out).
class LinearLayer : public Layer {
 public:
  // How the parameters are called and drawn.
  struct Parameters {
    const char* weight = "weight";
    const char* bias = "bias";  // null: none
    double weight_bound = 0, bias_bound = 0;
  };

  // InvalidArgument if input_shape is not (in) or (places, in), or a number of features is not
  // within [1, 2^31).
  static absl::StatusOr<std::unique_ptr<Layer>> Create(const proto::Linear& config,
                                                       absl::Span<const int64_t> input_shape);

  LinearLayer(absl::Span<const int64_t> input_shape, int64_t out_features,
              const Parameters& parameters);

  std::string kind() const override { return "linear"; }
  bool BackwardReadsY() const override { return false; }
  int64_t multiplications() const override { return SizeOf(output_shape()) * in_; }
  void Forward(const LayerContext& context, const ConstTensorRef& parameters,
               const ConstTensorRef& x, const TensorRef& y) override;
  void Backward(const LayerContext& context, const ConstTensorRef& parameters,
                const ConstTensorRef& x, const ConstTensorRef& y, const ConstTensorRef& dy,
                const TensorRef& dx, const TensorRef& dparameters) override;

 private:
  const int64_t in_, out_;
  const bool bias_;
};

}  // namespace rubato

#endif  // RUBATO_WORKER_MODEL_LAYERS_LINEAR_H_
