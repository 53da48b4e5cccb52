#include <algorithm>
#include <cmath>

#include "common/base/check.h"
#include "common/base/isa.h"
#include "tensor/cpu/by_dtype.h"
#include "tensor/cpu/lanes.h"
#include "tensor/kernels.h"

namespace rubato {
namespace {

// What a distance costs, and how fast that grows, as a factor of kScale. What is not a number stays
// so.
template <typename T>
struct Squared {
  static constexpr double kScale = 2;
  RUBATO_ALWAYS_INLINE double Cost(T d) const { return static_cast<double>(d) * d; }
  RUBATO_ALWAYS_INLINE T Slope(T d) const { return d; }
};

template <typename T>
struct Absolute {
  static constexpr double kScale = 1;
  RUBATO_ALWAYS_INLINE double Cost(T d) const { return std::abs(static_cast<double>(d)); }
  RUBATO_ALWAYS_INLINE T Slope(T d) const { return d > 0 ? T(1) : d < 0 ? T(-1) : d; }
};

template <typename T>
struct Huber {
  static constexpr double kScale = 1;
  double delta;
  RUBATO_ALWAYS_INLINE double Cost(T d) const {
    const double size = std::abs(static_cast<double>(d));
    return size > delta ? delta * (size - delta / 2) : size * size / 2;
  }
  RUBATO_ALWAYS_INLINE T Slope(T d) const {
    const T most = static_cast<T>(delta);
    return d > most ? most : d < -most ? -most : d;
  }
};

template <typename T, typename Form>
struct RegressionKernel {
  // The sum is in double, by lanes: value i goes to lane i modulo kLanes.
  static RUBATO_ALWAYS_INLINE double Run(Form form, const T* __restrict x,
                                         const float* __restrict t, double scale,
                                         T* __restrict gradient, int64_t n) {
    const T factor = static_cast<T>(Form::kScale * scale);
    double lanes[kLanes] = {};
    const int64_t whole = n / kLanes * kLanes;
    for (int64_t i = 0; i < whole; i += kLanes) {
      for (int64_t l = 0; l < kLanes; ++l) {
        const T distance = x[i + l] - t[i + l];
        lanes[l] += form.Cost(distance);
        gradient[i + l] = factor * form.Slope(distance);
      }
    }
    for (int64_t i = whole; i < n; ++i) {
      const T distance = x[i] - t[i];
      lanes[i - whole] += form.Cost(distance);
      gradient[i] = factor * form.Slope(distance);
    }
    return TreeSum(lanes);
  }
};

}  // namespace

double RegressionLoss(const ConstTensorRef& x, absl::Span<const float> t,
                      const RegressionOptions& options, double factor, const TensorRef& gradient) {
  RUBATO_CHECK(x.size() == static_cast<int64_t>(t.size()) && gradient.size() == x.size());
  return ByDType(x, [&](auto zero) {
    using T = decltype(zero);
    const auto run = [&](auto form) {
      return Dispatch<RegressionKernel<T, decltype(form)>>(
          form, x.values<T>().data(), t.data(), factor, gradient.values<T>().data(), x.size());
    };
    switch (options.form) {
      case RegressionForm::kAbsolute:
        return run(Absolute<T>());
      case RegressionForm::kHuber:
        return run(Huber<T>{options.delta});
      case RegressionForm::kSquared:
        break;
    }
    return run(Squared<T>());
  });
}

}  // namespace rubato
