#ifndef RUBATO_TENSOR_CPU_NORMALIZE_ROWS_H_
#define RUBATO_TENSOR_CPU_NORMALIZE_ROWS_H_

#include <cstdint>

#include "common/base/isa.h"
#include "tensor/cpu/lanes.h"

namespace rubato {

// Sums over one run of values, by lanes: value i goes to lane i modulo kLanes.

// The sum of f(i).
template <typename T, typename F>
RUBATO_ALWAYS_INLINE T LaneSum(int64_t n, F f) {
  T lanes[kLanes] = {};
  const int64_t whole = n / kLanes * kLanes;
  for (int64_t i = 0; i < whole; i += kLanes) {
    for (int64_t l = 0; l < kLanes; ++l) lanes[l] += f(i + l);
  }
  for (int64_t i = whole; i < n; ++i) lanes[i - whole] += f(i);
  return TreeSum(lanes);
}

template <typename T>
RUBATO_ALWAYS_INLINE T Sum(const T* x, int64_t n) {
  return LaneSum<T>(
      n, [x](int64_t i) __attribute__((always_inline)) { return x[i]; });
}

// Of (x - mean)^2.
template <typename T>
RUBATO_ALWAYS_INLINE T SquaresAround(T mean, const T* x, int64_t n) {
  return LaneSum<T>(
      n, [=](int64_t i) __attribute__((always_inline)) { return (x[i] - mean) * (x[i] - mean); });
}

// Of a gradient and of its product with the normalised value.
template <typename T>
struct GradientSums {
  T plain, normalized;
};
template <typename T>
RUBATO_ALWAYS_INLINE GradientSums<T> SumGradient(T mean, T inverse, const T* x, const T* dy,
                                                 int64_t n) {
  return {Sum(dy, n), LaneSum<T>(
                          n, [=](int64_t i) __attribute__((always_inline)) {
                            return dy[i] * ((x[i] - mean) * inverse);
                          })};
}

// y = (x - mean) * factor + bias.
template <typename T>
RUBATO_ALWAYS_INLINE void ScaleRow(T mean, T factor, T bias, const T* x, T* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - mean) * factor + bias;
}

// dx = factor * dy - inverse * (plain + (x - mean) * inverse * normalized).
template <typename T>
RUBATO_ALWAYS_INLINE void BackwardRow(T mean, T inverse, T factor, GradientSums<T> means,
                                      const T* x, const T* dy, T* dx, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    dx[i] = factor * dy[i] - inverse * (means.plain + ((x[i] - mean) * inverse) * means.normalized);
  }
}

}  // namespace rubato

#endif  // RUBATO_TENSOR_CPU_NORMALIZE_ROWS_H_
