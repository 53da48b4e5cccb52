#include "worker/loss.h"

#include "absl/status/status.h"
#include "common/check.h"
#include "tensor/kernels.h"

namespace rubato {

absl::StatusOr<Objective> ObjectiveFor(const proto::Loss& loss, int64_t classes,
                                       int64_t target_values) {
  if (IsClassification(loss.name())) {
    if (classes > 0) return Objective{classes, loss.name()};
    return absl::InvalidArgumentError(
        "loss.name: found cross_entropy, but the data's targets are numbers; expected mse");
  }
  if (classes == 0) return Objective{target_values, loss.name()};
  return absl::InvalidArgumentError(
      "loss.name: found mse, but the data's targets are classes; expected cross_entropy");
}

BatchResult CrossEntropy(const ConstTensorRef& logits, absl::Span<const int32_t> labels,
                         const TensorRef& gradient) {
  const CrossEntropySums sums = SoftmaxCrossEntropy(logits, labels, gradient);
  return {sums.loss, sums.correct, static_cast<int64_t>(labels.size())};
}

BatchResult MeanSquaredError(const ConstTensorRef& outputs, absl::Span<const float> values,
                             const TensorRef& gradient) {
  RUBATO_CHECK(outputs.shape().size() == 2 && outputs.dim(1) > 0);
  const double factor = 1.0 / outputs.dim(1);
  const double sum = SquaredError(outputs, values, factor, gradient);
  return {sum * factor, /*correct=*/0, outputs.dim(0)};
}

BatchResult ComputeLoss(proto::Loss::Name loss, const ConstTensorRef& outputs,
                        const Targets& targets, const TensorRef& gradient) {
  return IsClassification(loss) ? CrossEntropy(outputs, targets.labels, gradient)
                                : MeanSquaredError(outputs, targets.values, gradient);
}

}  // namespace rubato
