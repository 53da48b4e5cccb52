#include "common/base/check.h"
#include "common/base/isa.h"
#include "tensor/cpu/by_dtype.h"
#include "tensor/cpu/lanes.h"
#include "tensor/kernels.h"

namespace rubato {
namespace {

template <typename T>
struct SquaredErrorKernel {
  // The sum is in double, by lanes: value i goes to lane i modulo kLanes.
  static RUBATO_ALWAYS_INLINE double Run(const T* __restrict x, const float* __restrict t, T factor,
                                         T* __restrict gradient, int64_t n) {
    double lanes[kLanes] = {};
    const int64_t whole = n / kLanes * kLanes;
    for (int64_t i = 0; i < whole; i += kLanes) {
      for (int64_t l = 0; l < kLanes; ++l) {
        const T difference = x[i + l] - t[i + l];
        lanes[l] += static_cast<double>(difference) * difference;
        gradient[i + l] = factor * difference;
      }
    }
    for (int64_t i = whole; i < n; ++i) {
      const T difference = x[i] - t[i];
      lanes[i - whole] += static_cast<double>(difference) * difference;
      gradient[i] = factor * difference;
    }
    return TreeSum(lanes);
  }
};

}  // namespace

double SquaredError(const ConstTensorRef& x, absl::Span<const float> t, double factor,
                    const TensorRef& gradient) {
  RUBATO_CHECK(x.size() == static_cast<int64_t>(t.size()) && gradient.size() == x.size());
  return ByDType(x, [&](auto zero) {
    using T = decltype(zero);
    return Dispatch<SquaredErrorKernel<T>>(x.values<T>().data(), t.data(),
                                           static_cast<T>(2 * factor), gradient.values<T>().data(),
                                           x.size());
  });
}

}  // namespace rubato
