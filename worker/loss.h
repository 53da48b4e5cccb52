// The loss of a batch and its gradient.
#ifndef RUBATO_WORKER_LOSS_H_
#define RUBATO_WORKER_LOSS_H_

#include <cstdint>

#include "absl/types/span.h"
#include "tensor/tensor.h"

namespace rubato {

// What a batch is to be compared with. One of the two is filled.
struct Targets {
  absl::Span<const int32_t> labels;  // of classes
  absl::Span<const float> values;    // of a regression
};

// What one batch gave.
struct BatchResult {
  double loss_sum = 0;  // over the samples
  int64_t correct = 0;  // samples whose label had the greatest logit (the first among equals)
  int64_t samples = 0;
};

// Cross-entropy: -log softmax(logits)[label], summed over the samples, as
// torch.nn.CrossEntropyLoss(reduction="sum"). logits: (n, outputs); labels: (n), each in
// [0, outputs). `gradient` (n, outputs) receives the gradient of the sum by the logits.
BatchResult CrossEntropy(const ConstTensorRef& logits, absl::Span<const int32_t> labels,
                         const TensorRef& gradient);

}  // namespace rubato

#endif  // RUBATO_WORKER_LOSS_H_
