#ifndef RUBATO_TENSOR_CPU_EXP_H_
#define RUBATO_TENSOR_CPU_EXP_H_

#include <cmath>
#include <cstdint>
#include <limits>

#include "common/base/isa.h"

namespace rubato {

// e^x with a relative error below 1e-7, by additions, multiplications and bits only: it vectorises,
// and gives equal bits at every level; the C library promises neither. x = n ln 2 + r with
// |r| <= ln 2 / 2; e^r by the polynomial of Cephes' expf (Moshier, 1992). Below -87.33654, where
// results would be subnormal: 0. Above 88.37626: infinity (float itself ends at e^88.72). NaN stays
// NaN.
RUBATO_ALWAYS_INLINE float Exp(float x) {
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer, in the low
                                         // bits of the sum
  const float shifted = x * 1.44269504f + kRound;
  const float n = shifted - kRound;
  // ln 2 in two parts, the first short enough for an exact product.
  const float r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = (p * (r * r) + r) + 1.0f;
  const uint32_t exponent = (__builtin_bit_cast(uint32_t, shifted) + 127u) << 23;
  float y = p * __builtin_bit_cast(float, exponent);
  y = x < -87.33654f ? 0.0f : y;
  return x > 88.37626f ? std::numeric_limits<float>::infinity() : y;
}

RUBATO_ALWAYS_INLINE double Exp(double x) { return std::exp(x); }

}  // namespace rubato

#endif  // RUBATO_TENSOR_CPU_EXP_H_
