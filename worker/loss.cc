#include "worker/loss.h"

#include "tensor/kernels.h"

namespace rubato {

BatchResult CrossEntropy(const ConstTensorRef& logits, absl::Span<const int32_t> labels,
                         const TensorRef& gradient) {
  const CrossEntropySums sums = SoftmaxCrossEntropy(logits, labels, gradient);
  return {sums.loss, sums.correct, static_cast<int64_t>(labels.size())};
}

}  // namespace rubato
