// The loss of a batch and its gradient.
#ifndef RUBATO_WORKER_MODEL_LOSS_H_
#define RUBATO_WORKER_MODEL_LOSS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/job.pb.h"
#include "tensor/kernels.h"
#include "tensor/tensor.h"

namespace rubato {

// What a batch of n examples should give: a class each, or numbers.
struct Targets {
  absl::Span<const int32_t> labels = {};  // (n, places), for cross-entropy
  absl::Span<const float> values = {};    // (n, outputs), for the other losses
  // Factor of their loss and its gradient, where labels are ignored or have weights: see
  // TargetWeight.
  double weight = 1;
};

// What a model is to learn.
struct Objective {
  // Cross-entropy: the number of classes, so that labels lie in [0, outputs), and the model may
  // give more. Other losses: the numbers of a target, and the model gives as many.
  int64_t outputs = 0;
  proto::Loss::Name loss = proto::Loss::NAME_CROSS_ENTROPY;
  // Cross-entropy: labels of an example. The model gives (outputs) for each; an example's loss is
  // their mean.
  int64_t places = 1;
  double label_smoothing = 0;
  int64_t ignore_index = -1;              // labels that cost nothing; -1: none
  std::vector<float> class_weights = {};  // of each of `outputs`, not all 0; or none
  double delta = 1;                       // Huber's
  // Of what it learns from: every value is a whole number in [0, symbols), as an embedding takes
  // it; 0: some are not. Nothing: not known, and not checked.
  std::optional<int64_t> symbols = std::nullopt;
};

// Whether the loss takes labels, so that predictions can be right or wrong.
inline bool IsClassification(proto::Loss::Name loss) {
  return loss == proto::Loss::NAME_CROSS_ENTROPY;
}

// The objective of a job on data whose targets are labels of `classes` classes or, if `classes` is
// 0, `target_values` numbers; `places` labels an example. InvalidArgument if the loss takes the
// other, ignores a class that the data have not, or has not one weight for each class.
absl::StatusOr<Objective> ObjectiveFor(const proto::Loss& loss, int64_t classes,
                                       int64_t target_values, int64_t places = 1);

// What one batch gave.
struct BatchResult {
  double loss_sum = 0;  // over the samples
  // Samples whose label had the greatest logit (the first among equals): of samples with several
  // labels each, the sum of the shares that had. 0 if targets are numbers.
  double correct = 0;
  // Likewise the samples that could be right: all, but for the shares of labels that are ignored.
  double judged = 0;
  int64_t samples = 0;
  // Those of which the loss is known: all, or none where no label of the whole step counts. Of a
  // script their weight.
  double told = 0;

  BatchResult& operator+=(const BatchResult& other);
};

// What `correct` may at most be.
double Judged(const Objective& objective, const Targets& targets, int64_t samples);

// Losses and gradients are sums over the samples: whoever divides them by the number of samples
// has PyTorch's default, a mean.

// What makes this so where labels are ignored or have weights, too, whose sum PyTorch's mean
// divides by: the factor of each label's loss. labels: of the whole step; weights: the sum of their
// WeightOfLabels. It is labels / weights, or 0 if no label counts: then there is no loss, where
// PyTorch has 0/0.
double TargetWeight(int64_t labels, double weights);

// The sum of the labels' class weights, or 1 each; 0 of those that are ignored.
double WeightOfLabels(const Objective& objective, absl::Span<const int32_t> labels);

// Whether WeightOfLabels may differ from the labels' number.
inline bool WeighsLabels(const Objective& objective) {
  return objective.ignore_index >= 0 || !objective.class_weights.empty();
}

// With gradients times gradient_scale / places.
CrossEntropyOptions CrossEntropyOptionsOf(const Objective& objective, double gradient_scale);
RegressionOptions RegressionOptionsOf(const Objective& objective);

// Cross-entropy: -log softmax(logits)[label], summed over the samples, as
// torch.nn.CrossEntropyLoss(reduction="sum"), with its weight, label_smoothing and ignore_index; of
// a sample with several places the mean over them. logits: (n, outputs) or (n, places, outputs);
// labels: (n, places), each in [0, outputs). `gradient`, like logits, receives the gradient of the
// sum by them.
//
// A label that is ignored has loss and gradient 0; loss and gradient of the others are multiplied
// by `weight`. `judged` leaves them out, and with it accuracy.
BatchResult CrossEntropy(const Objective& objective, const ConstTensorRef& logits,
                         absl::Span<const int32_t> labels, const TensorRef& gradient,
                         double weight = 1);

// The mean over a sample's outputs of what their distances from the values cost, summed over the
// samples, i.e. n times torch.nn.MSELoss(), L1Loss() or HuberLoss(delta=delta), which are means
// over samples and outputs. outputs, values, gradient: (n, outputs).
BatchResult MeanError(const Objective& objective, const ConstTensorRef& outputs,
                      absl::Span<const float> values, const TensorRef& gradient);

// One of these.
BatchResult ComputeLoss(const Objective& objective, const ConstTensorRef& outputs,
                        const Targets& targets, const TensorRef& gradient);

}  // namespace rubato

#endif  // RUBATO_WORKER_MODEL_LOSS_H_
