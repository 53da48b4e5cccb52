#include <algorithm>
#include <cmath>
#include <limits>

#include "common/base/check.h"
#include "common/base/isa.h"
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

// gradient = (gradient - even) * scale.
template <typename T>
struct SmoothKernel {
  static RUBATO_ALWAYS_INLINE void Run(T even, T scale, T* gradient, int64_t n) {
    for (int64_t j = 0; j < n; ++j) gradient[j] = (gradient[j] - even) * scale;
  }
};

// Likewise where classes have weights; gradient is the softmax of a row.
template <typename T>
void Weigh(const CrossEntropyOptions& options, double even, int32_t label, absl::Span<T> gradient) {
  const double own = (1 - options.label_smoothing) * options.class_weights[label];
  const double whole = own + even * options.sum_of_weights;
  for (size_t j = 0; j < gradient.size(); ++j) {
    const double target =
        even * options.class_weights[j] + (static_cast<int32_t>(j) == label ? own : 0);
    gradient[j] = static_cast<T>((gradient[j] * whole - target) * options.gradient_scale);
  }
}

template <typename T>
CrossEntropySums Run(absl::Span<const T> logits, absl::Span<const int32_t> labels,
                     const CrossEntropyOptions& options, absl::Span<T> gradient) {
  const int64_t classes = logits.size() / labels.size();
  const double even = options.label_smoothing / static_cast<double>(classes);
  const float* const weights = options.class_weights;
  CrossEntropySums sums;
  for (size_t i = 0; i < labels.size(); ++i) {
    const absl::Span<const T> row = logits.subspan(i * classes, classes);
    T* const out = &gradient[i * classes];
    const int32_t label = labels[i];
    RUBATO_CHECK(label >= 0 && label < classes);
    if (label == options.ignore_index) {
      std::fill(out, out + classes, T(0));
      continue;
    }
    T max, sum;
    Dispatch<SoftmaxKernel<T>>(row.data(), classes, out, &max, &sum);
    const double log_sum = std::log(static_cast<double>(sum));
    const auto weight = [&](int64_t j) { return weights == nullptr ? 1.0 : weights[j]; };
    double loss = weight(label) * (log_sum + (static_cast<double>(max) - row[label]));
    if (even > 0) {
      double all = 0;  // of -log softmax over the classes
      for (int64_t j = 0; j < classes; ++j) {
        all += weight(j) * (log_sum + (static_cast<double>(max) - row[j]));
      }
      loss = (1 - options.label_smoothing) * loss + even * all;
    }
    if (weights != nullptr) {
      Weigh(options, even, label, gradient.subspan(i * classes, classes));
    } else {
      out[label] -= static_cast<T>(1 - options.label_smoothing);
      if (even > 0 || options.gradient_scale != 1) {
        Dispatch<SmoothKernel<T>>(static_cast<T>(even), static_cast<T>(options.gradient_scale), out,
                                  classes);
      }
    }
    sums.loss += loss;
    sums.correct += std::find(row.begin(), row.end(), max) == row.begin() + label;
  }
  return sums;
}

}  // namespace

CrossEntropySums SoftmaxCrossEntropy(const ConstTensorRef& logits, absl::Span<const int32_t> labels,
                                     const CrossEntropyOptions& options,
                                     const TensorRef& gradient) {
  RUBATO_CHECK(logits.shape().size() == 2 && gradient.size() == logits.size());
  RUBATO_CHECK(!labels.empty() && logits.dim(0) == static_cast<int64_t>(labels.size()));
  if (logits.dtype() == DType::kFloat32) {
    return Run<float>(logits.values<float>(), labels, options, gradient.values<float>());
  }
  return Run<double>(logits.values<double>(), labels, options, gradient.values<double>());
}

}  // namespace rubato
