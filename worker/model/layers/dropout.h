#ifndef RUBATO_WORKER_MODEL_LAYERS_DROPOUT_H_
#define RUBATO_WORKER_MODEL_LAYERS_DROPOUT_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/job.pb.h"
#include "worker/model/layers/layer.h"

namespace rubato {

// In training each value becomes 0 with probability p and is divided by 1 - p otherwise, as
// torch.nn.Dropout; in evaluation y = x. Srivastava et al., "Dropout", JMLR 2014. Which values stay
// is a pure function of the context's key and the value's place in the batch, so that nothing is
// kept from Forward to Backward.
class DropoutLayer : public Layer {
 public:
  // InvalidArgument unless 0 <= p < 1.
  static absl::StatusOr<std::unique_ptr<Layer>> Create(const proto::Dropout& config,
                                                       absl::Span<const int64_t> input_shape);

  DropoutLayer(double p, absl::Span<const int64_t> input_shape);

  std::string kind() const override { return "dropout"; }
  bool BackwardReadsX() const override { return false; }
  bool BackwardReadsY() const override { return false; }
  void Forward(const LayerContext& context, const ConstTensorRef& parameters,
               const ConstTensorRef& x, const TensorRef& y) override;
  void Backward(const LayerContext& context, const ConstTensorRef& parameters,
                const ConstTensorRef& x, const ConstTensorRef& y, const ConstTensorRef& dy,
                const TensorRef& dx, const TensorRef& dparameters) override;

 private:
  const double p_;
};

}  // namespace rubato

#endif  // RUBATO_WORKER_MODEL_LAYERS_DROPOUT_H_
