#ifndef RUBATO_TENSOR_CPU_LANES_H_
#define RUBATO_TENSOR_CPU_LANES_H_

#include <cstdint>

#include "common/base/isa.h"

namespace rubato {

// Accumulators of a vectorised sum. A fixed number, whatever the registers' width, so that sums
// have equal bits at every level: one AVX-512 register of float, two of AVX2, four of SSE.
constexpr int64_t kLanes = 16;

// The sum of the lanes along one tree: halves are added until one value is left.
template <typename T>
RUBATO_ALWAYS_INLINE T TreeSum(T* lanes) {
  for (int64_t half = kLanes / 2; half > 0; half /= 2) {
    for (int64_t l = 0; l < half; ++l) lanes[l] += lanes[l + half];
  }
  return lanes[0];
}

}  // namespace rubato

#endif  // RUBATO_TENSOR_CPU_LANES_H_
