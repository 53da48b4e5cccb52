#include <algorithm>
#include <cmath>
#include <limits>

#include "common/check.h"
#include "common/isa.h"
#include "tensor/cpu/exp.h"
#include "tensor/cpu/lanes.h"
#include "tensor/kernels.h"

namespace rubato {
namespace {

template <typename T>
struct SoftmaxKernel {
  // softmax[j] = exp(x[j] - *max) / *sum, where *max is the greatest of x and *sum makes the
  // total 1. Values beyond the last 16 are padded with -infinity, whose exponential is 0.
  static RUBATO_ALWAYS_INLINE void Run(const T* __restrict x, int64_t n, T* __restrict softmax,
                                       T* max, T* sum) {
    constexpr T kPadding = -std::numeric_limits<T>::infinity();
    const int64_t whole = n / kLanes * kLanes;
    T rest[kLanes];
    for (int64_t l = 0; l < kLanes; ++l) rest[l] = kPadding;
    for (int64_t j = whole; j < n; ++j) rest[j - whole] = x[j];

    T lanes[kLanes];
    for (int64_t l = 0; l < kLanes; ++l) lanes[l] = rest[l];
    for (int64_t j = 0; j < whole; j += kLanes) {
      for (int64_t l = 0; l < kLanes; ++l) lanes[l] = x[j + l] > lanes[l] ? x[j + l] : lanes[l];
    }
    T greatest = kPadding;
    for (int64_t l = 0; l < kLanes; ++l) greatest = lanes[l] > greatest ? lanes[l] : greatest;

    for (int64_t l = 0; l < kLanes; ++l) lanes[l] = rest[l] = Exp(rest[l] - greatest);
    for (int64_t j = 0; j < whole; j += kLanes) {
      for (int64_t l = 0; l < kLanes; ++l) {
        softmax[j + l] = Exp(x[j + l] - greatest);
        lanes[l] += softmax[j + l];
      }
    }
    for (int64_t j = whole; j < n; ++j) softmax[j] = rest[j - whole];
    const T total = TreeSum(lanes);
    const T factor = 1 / total;
    for (int64_t j = 0; j < n; ++j) softmax[j] *= factor;
    *max = greatest;
    *sum = total;
  }
};

template <typename T>
CrossEntropySums Run(absl::Span<const T> logits, absl::Span<const int32_t> labels,
                     absl::Span<T> gradient) {
  const int64_t classes = logits.size() / labels.size();
  CrossEntropySums sums;
  for (size_t i = 0; i < labels.size(); ++i) {
    const absl::Span<const T> row = logits.subspan(i * classes, classes);
    T max, sum;
    Dispatch<SoftmaxKernel<T>>(row.data(), classes, &gradient[i * classes], &max, &sum);
    const int32_t label = labels[i];
    RUBATO_CHECK(label >= 0 && label < classes);
    gradient[i * classes + label] -= 1;
    sums.loss += std::log(static_cast<double>(sum)) + (static_cast<double>(max) - row[label]);
    sums.correct += std::find(row.begin(), row.end(), max) == row.begin() + label;
  }
  return sums;
}

}  // namespace

CrossEntropySums SoftmaxCrossEntropy(const ConstTensorRef& logits, absl::Span<const int32_t> labels,
                                     const TensorRef& gradient) {
  RUBATO_CHECK(logits.shape().size() == 2 && gradient.size() == logits.size());
  RUBATO_CHECK(!labels.empty() && logits.dim(0) == static_cast<int64_t>(labels.size()));
  if (logits.dtype() == DType::kFloat32) {
    return Run<float>(logits.values<float>(), labels, gradient.values<float>());
  }
  return Run<double>(logits.values<double>(), labels, gradient.values<double>());
}

}  // namespace rubato
