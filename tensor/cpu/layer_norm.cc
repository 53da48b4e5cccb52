#include <algorithm>
#include <cmath>

#include "common/base/check.h"
#include "common/base/isa.h"
#include "tensor/cpu/by_dtype.h"
#include "tensor/cpu/normalize_rows.h"
#include "tensor/normalization.h"

namespace rubato {
namespace {

template <typename T>
struct LayerNormKernel {
  static RUBATO_ALWAYS_INLINE void Run(const T* __restrict x, const T* __restrict weight,
                                       const T* __restrict bias, T eps, int64_t rows,
                                       int64_t columns, T* __restrict y, T* __restrict statistics) {
    for (int64_t r = 0; r < rows; ++r, x += columns, y += columns) {
      const T mean = Sum(x, columns) / columns;
      const T variance = SquaresAround(mean, x, columns) / columns;
      const T inverse = 1 / std::sqrt(variance + eps);
      statistics[2 * r] = mean;
      statistics[2 * r + 1] = inverse;
      if (weight == nullptr) {
        ScaleRow(mean, inverse, T(0), x, y, columns);
        continue;
      }
      for (int64_t j = 0; j < columns; ++j) {
        y[j] = ((x[j] - mean) * inverse) * weight[j] + bias[j];
      }
    }
  }
};

template <typename T>
struct LayerNormBackwardKernel {
  // dweight and dbias are added to.
  static RUBATO_ALWAYS_INLINE void Run(const T* __restrict x, const T* __restrict weight,
                                       const T* __restrict statistics, const T* __restrict dy,
                                       int64_t rows, int64_t columns, T* __restrict dx,
                                       T* __restrict dweight, T* __restrict dbias) {
    for (int64_t r = 0; r < rows; ++r, x += columns, dy += columns) {
      const T mean = statistics[2 * r], inverse = statistics[2 * r + 1];
      if (weight != nullptr) {
        for (int64_t j = 0; j < columns; ++j) {
          dweight[j] += dy[j] * ((x[j] - mean) * inverse);
          dbias[j] += dy[j];
        }
      }
      if (dx == nullptr) continue;
      if (weight == nullptr) {
        GradientSums<T> sums = SumGradient(mean, inverse, x, dy, columns);
        BackwardRow(mean, inverse, inverse, {sums.plain / columns, sums.normalized / columns}, x,
                    dy, dx, columns);
      } else {
        const T plain = LaneSum<T>(
                            columns, [=
        ](int64_t j) __attribute__((always_inline)) { return dy[j] * weight[j]; }) /
                        columns;
        const T normalized = LaneSum<T>(
                                 columns,
                                 [=](int64_t j) __attribute__((always_inline)) {
                                   return dy[j] * weight[j] * ((x[j] - mean) * inverse);
                                 }) /
                             columns;
        for (int64_t j = 0; j < columns; ++j) {
          dx[j] = inverse * (dy[j] * weight[j] - plain - ((x[j] - mean) * inverse) * normalized);
        }
      }
      dx += columns;
    }
  }
};

template <typename T>
const T* Pointer(const ConstTensorRef& tensor) {
  return tensor.is_null() ? nullptr : tensor.values<T>().data();
}

template <typename T>
T* Pointer(const TensorRef& tensor) {
  return tensor.is_null() ? nullptr : tensor.values<T>().data();
}

}  // namespace

void LayerNorm(const ConstTensorRef& x, const ConstTensorRef& weight, const ConstTensorRef& bias,
               double eps, const TensorRef& y, const TensorRef& statistics) {
  RUBATO_CHECK(x.shape().size() == 2 && y.size() == x.size());
  RUBATO_CHECK(statistics.size() == 2 * x.dim(0) && weight.is_null() == bias.is_null());
  ByDType(x, [&](auto zero) {
    using T = decltype(zero);
    Dispatch<LayerNormKernel<T>>(x.values<T>().data(), Pointer<T>(weight), Pointer<T>(bias),
                                 static_cast<T>(eps), x.dim(0), x.dim(1), y.values<T>().data(),
                                 statistics.values<T>().data());
  });
}

void LayerNormBackward(const ConstTensorRef& x, const ConstTensorRef& weight,
                       const ConstTensorRef& statistics, const ConstTensorRef& dy,
                       const TensorRef& dx, const TensorRef& dweight, const TensorRef& dbias) {
  RUBATO_CHECK(x.shape().size() == 2 && dy.size() == x.size());
  ByDType(x, [&](auto zero) {
    using T = decltype(zero);
    for (const TensorRef* sum : {&dweight, &dbias}) {
      if (!sum->is_null()) std::fill(sum->values<T>().begin(), sum->values<T>().end(), T(0));
    }
    Dispatch<LayerNormBackwardKernel<T>>(x.values<T>().data(), Pointer<T>(weight),
                                         statistics.values<T>().data(), dy.values<T>().data(),
                                         x.dim(0), x.dim(1), Pointer<T>(dx), Pointer<T>(dweight),
                                         Pointer<T>(dbias));
  });
}

}  // namespace rubato
