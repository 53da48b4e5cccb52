#include "worker/model/loss.h"

#include <algorithm>
#include <numeric>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/job/schema.h"

namespace rubato {

absl::StatusOr<Objective> ObjectiveFor(const proto::Loss& loss, int64_t classes,
                                       int64_t target_values, int64_t places) {
  Objective objective;
  objective.loss = loss.name();
  if (!IsClassification(loss.name())) {
    if (classes > 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("loss.name: found ", YamlName(loss.name()),
                       ", but the data's targets are classes; expected cross_entropy"));
    }
    objective.outputs = target_values;
    objective.delta = loss.delta();
    return objective;
  }
  if (classes == 0) {
    return absl::InvalidArgumentError(
        "loss.name: found cross_entropy, but the data's targets are numbers; expected mse, l1 or "
        "huber");
  }
  objective.outputs = classes;
  objective.places = places;
  objective.label_smoothing = loss.label_smoothing();
  if (loss.has_ignore_index()) {
    if (loss.ignore_index() >= classes) {
      return absl::InvalidArgumentError(absl::StrCat("loss.ignore_index: found ",
                                                     loss.ignore_index(), ", but the data has ",
                                                     classes, " classes, counted from 0"));
    }
    objective.ignore_index = loss.ignore_index();
  }
  if (loss.class_weights_size() > 0 && loss.class_weights_size() != classes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "loss.class_weights: found ", loss.class_weights_size(),
        loss.class_weights_size() == 1 ? " number" : " numbers",
        ", expected one for each of the data's ", classes, " classes, in ascending order"));
  }
  objective.class_weights.assign(loss.class_weights().begin(), loss.class_weights().end());
  return objective;
}

BatchResult& BatchResult::operator+=(const BatchResult& other) {
  loss_sum += other.loss_sum;
  correct += other.correct;
  judged += other.judged;
  samples += other.samples;
  told += other.told;
  return *this;
}

double Judged(const Objective& objective, const Targets& targets, int64_t samples) {
  if (!IsClassification(objective.loss)) return 0;
  if (objective.ignore_index < 0) return static_cast<double>(samples);
  const int64_t ignored = std::count(targets.labels.begin(), targets.labels.end(),
                                     static_cast<int32_t>(objective.ignore_index));
  return static_cast<double>(static_cast<int64_t>(targets.labels.size()) - ignored) /
         static_cast<double>(objective.places);
}

double TargetWeight(int64_t labels, double weights) {
  return weights > 0 ? static_cast<double>(labels) / weights : 0.0;
}

double WeightOfLabels(const Objective& objective, absl::Span<const int32_t> labels) {
  double sum = 0;
  for (const int32_t label : labels) {
    if (label == objective.ignore_index) continue;
    sum += objective.class_weights.empty() ? 1 : objective.class_weights[label];
  }
  return sum;
}

CrossEntropyOptions CrossEntropyOptionsOf(const Objective& objective, double gradient_scale) {
  CrossEntropyOptions options;
  options.label_smoothing = objective.label_smoothing;
  options.ignore_index = objective.ignore_index;
  options.gradient_scale = gradient_scale * (1.0 / static_cast<double>(objective.places));
  if (!objective.class_weights.empty()) {
    options.class_weights = objective.class_weights.data();
    options.sum_of_weights =
        std::accumulate(objective.class_weights.begin(), objective.class_weights.end(), 0.0);
  }
  return options;
}

RegressionOptions RegressionOptionsOf(const Objective& objective) {
  switch (objective.loss) {
    case proto::Loss::NAME_L1:
      return {RegressionForm::kAbsolute};
    case proto::Loss::NAME_HUBER:
      return {RegressionForm::kHuber, objective.delta};
    default:
      return {RegressionForm::kSquared};
  }
}

BatchResult CrossEntropy(const Objective& objective, const ConstTensorRef& logits,
                         absl::Span<const int32_t> labels, const TensorRef& gradient,
                         double weight) {
  const int64_t rows = static_cast<int64_t>(labels.size());
  const int64_t outputs = logits.shape().back();
  const double share = 1.0 / static_cast<double>(objective.places);
  const CrossEntropySums sums = SoftmaxCrossEntropy(
      logits.Reshaped({rows, outputs}), labels, CrossEntropyOptionsOf(objective, weight), gradient);
  const int64_t samples = rows / objective.places;
  return {sums.loss * share * weight, static_cast<double>(sums.correct) * share,
          Judged(objective, {labels, {}}, samples), samples,
          weight > 0 ? static_cast<double>(samples) : 0.0};
}

BatchResult MeanError(const Objective& objective, const ConstTensorRef& outputs,
                      absl::Span<const float> values, const TensorRef& gradient) {
  RUBATO_CHECK(outputs.shape().size() == 2 && outputs.dim(1) > 0);
  const double factor = 1.0 / outputs.dim(1);
  const double sum =
      RegressionLoss(outputs, values, RegressionOptionsOf(objective), factor, gradient);
  return {sum * factor, /*correct=*/0.0, /*judged=*/0.0, outputs.dim(0),
          static_cast<double>(outputs.dim(0))};
}

BatchResult ComputeLoss(const Objective& objective, const ConstTensorRef& outputs,
                        const Targets& targets, const TensorRef& gradient) {
  return IsClassification(objective.loss)
             ? CrossEntropy(objective, outputs, targets.labels, gradient, targets.weight)
             : MeanError(objective, outputs, targets.values, gradient);
}

}  // namespace rubato
