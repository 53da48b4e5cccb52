// Smooth functions of one value and their derivatives. For float all but gelu are computed in
// double and rounded once: by additions, multiplications, divisions and bits only, without a
// branch, so that they vectorise and give equal bits at every level; the C library promises
// neither. Relative errors before the rounding are below 1e-9, so that results are within 0.52
// units in the last place. For double they are the C library's.
#ifndef RUBATO_TENSOR_CPU_ACTIVATIONS_H_
#define RUBATO_TENSOR_CPU_ACTIVATIONS_H_

#include <cmath>
#include <cstdint>

#include "common/base/isa.h"
#include "tensor/cpu/exp.h"

namespace rubato {
namespace activations_internal {

// a where `condition` holds, else b. By bits: the compiler would make a branch of `? :` where a is
// a constant, and loops with branches do not vectorise.
RUBATO_ALWAYS_INLINE double Select(bool condition, double a, double b) {
  const uint64_t mask = -static_cast<uint64_t>(condition);
  return __builtin_bit_cast(
      double, (__builtin_bit_cast(uint64_t, a) & mask) | (__builtin_bit_cast(uint64_t, b) & ~mask));
}

// x = n ln 2 + r with |r| <= ln 2 / 2: *scale = 2^n, and r (1 + r / 2 + r^2 / 6 …) = e^r - 1 is
// returned, by its Taylor series, whose rest is below 1e-12. x in [-708, 709]; NaN stays NaN.
RUBATO_ALWAYS_INLINE double ReducedExpm1(double x, double* scale) {
  constexpr double kRound = 0x1.8p52;  // adding it rounds to an integer, in the sum's low bits
  const double shifted = x * 0x1.71547652b82fep0 + kRound;
  const double r = x - (shifted - kRound) * 0x1.62e42fefa39efp-1;
  double p = 1.0 / 39916800;
  p = p * r + 1.0 / 3628800;
  p = p * r + 1.0 / 362880;
  p = p * r + 1.0 / 40320;
  p = p * r + 1.0 / 5040;
  p = p * r + 1.0 / 720;
  p = p * r + 1.0 / 120;
  p = p * r + 1.0 / 24;
  p = p * r + 1.0 / 6;
  p = p * r + 1.0 / 2;
  *scale = __builtin_bit_cast(double, (__builtin_bit_cast(uint64_t, shifted) + 1023u) << 52);
  return (p * r) * r + r;
}

// e^x of x <= 0; where below e^-708: that.
RUBATO_ALWAYS_INLINE double ExpForFloat(double x) {
  double scale;
  const double q = ReducedExpm1(Select(x < -708, -708, x), &scale);
  return scale * q + scale;
}

// 1 / (1 + e^-x), and e^-|x| / (1 + e^-|x|)^2, which is its derivative.
RUBATO_ALWAYS_INLINE double SigmoidForFloat(double x, double* derivative) {
  const double e = ExpForFloat(-__builtin_fabs(x));
  const double factor = 1 / (1 + e);
  *derivative = e * factor * factor;
  return Select(x < 0, e, 1) * factor;
}

// The normal distribution's P(X > u) / e^(-u^2 / 2) for u in [0, 15], i.e. erfcx(u / sqrt(2)) / 2:
// a polynomial in 1 / (u + 3.5), through its values at 11 Chebyshev nodes; relative error 8e-9.
RUBATO_ALWAYS_INLINE float ScaledNormalTail(float u) {
  const float t = 8.633333333f / (u + 3.5f) - 1.466666667f;  // in [-1, 1]
  float p = -2.5360206602610788e-06f;
  p = p * t + 1.8840206134810588e-06f;
  p = p * t + 3.5222762683705154e-05f;
  p = p * t + -3.161304975019316e-05f;
  p = p * t + -0.0004943340954194059f;
  p = p * t + -8.486316116339452e-05f;
  p = p * t + 0.008523638669531533f;
  p = p * t + 0.04073679731936849f;
  p = p * t + 0.10848097882034245f;
  p = p * t + 0.19613805036040008f;
  return p * t + 0.14669677414185928f;
}

// P(X <= x) of the normal distribution, in float32 throughout: twice as many values in a register,
// for what a transformer computes most often. *gauss becomes e^(-x^2 / 2). Beyond 15, where
// P(X > u) is below all floats, both are those of 15.
RUBATO_ALWAYS_INLINE float NormalDistribution(float x, float* gauss) {
  float u = __builtin_fabsf(x);
  u = u > 15.0f ? 15.0f : u;
  // u^2 in two parts: the square of u's upper bits, which is exact, and a small rest.
  const float upper = __builtin_bit_cast(float, __builtin_bit_cast(uint32_t, u) & 0xfffff000u);
  const float rest = -0.5f * ((u - upper) * (u + upper));
  const float e = Exp(-0.5f * (upper * upper));
  *gauss = e + e * (rest * (1.0f + rest * (0.5f + rest * 0.16666667f)));
  const float tail = *gauss * ScaledNormalTail(u);
  return x > 0 ? 1.0f - tail : tail;
}

constexpr double kSqrtHalf = 0.70710678118654752440;
constexpr double kInverseSqrt2Pi = 0.39894228040143267794;
constexpr double kSqrt2OverPi = 0.79788456080286535588;

// What the approximate gelu takes the hyperbolic tangent of, and its derivative.
RUBATO_ALWAYS_INLINE double GeluInner(double x) {
  return kSqrt2OverPi * (x + 0.044715 * (x * x * x));
}
RUBATO_ALWAYS_INLINE double GeluInnerDerivative(double x) {
  return kSqrt2OverPi * (1 + 3 * 0.044715 * (x * x));
}

}  // namespace activations_internal

// 1 / (1 + e^-x).
RUBATO_ALWAYS_INLINE float Sigmoid(float x) {
  double derivative;
  return static_cast<float>(activations_internal::SigmoidForFloat(x, &derivative));
}
RUBATO_ALWAYS_INLINE double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// The hyperbolic tangent: (e^2x - 1) / (e^2x + 1), odd to the bit.
RUBATO_ALWAYS_INLINE float Tanh(float x) {
  double u = __builtin_fabs(double{x});
  u = activations_internal::Select(u > 20, 20, u);  // the result is 1 from 9.02 on
  double scale;
  const double q = activations_internal::ReducedExpm1(2 * u, &scale);
  const double expm1 = scale * q + (scale - 1);  // keeps all digits where u is small: scale is 1
  return static_cast<float>(__builtin_copysign(expm1 / (expm1 + 2), double{x}));
}
RUBATO_ALWAYS_INLINE double Tanh(double x) { return std::tanh(x); }

// x P(X <= x) of the normal distribution, i.e. x (1 + erf(x / sqrt(2))) / 2: Hendrycks and Gimpel,
// "Gaussian error linear units", 2016.
RUBATO_ALWAYS_INLINE float Gelu(float x) {
  float gauss;
  return x * activations_internal::NormalDistribution(x, &gauss);
}
RUBATO_ALWAYS_INLINE double Gelu(double x) {
  return 0.5 * x * std::erfc(-x * activations_internal::kSqrtHalf);
}

// P(X <= x) + x e^(-x^2 / 2) / sqrt(2 pi).
RUBATO_ALWAYS_INLINE float GeluDerivative(float x) {
  float gauss;
  const float p = activations_internal::NormalDistribution(x, &gauss);
  return p + x * (static_cast<float>(activations_internal::kInverseSqrt2Pi) * gauss);
}
RUBATO_ALWAYS_INLINE double GeluDerivative(double x) {
  return 0.5 * std::erfc(-x * activations_internal::kSqrtHalf) +
         x * activations_internal::kInverseSqrt2Pi * std::exp(-0.5 * x * x);
}

// Both of these at the price of one.
RUBATO_ALWAYS_INLINE float GeluWithDerivative(float x, float* derivative) {
  float gauss;
  const float p = activations_internal::NormalDistribution(x, &gauss);
  *derivative = p + x * (static_cast<float>(activations_internal::kInverseSqrt2Pi) * gauss);
  return x * p;
}
RUBATO_ALWAYS_INLINE double GeluWithDerivative(double x, double* derivative) {
  *derivative = GeluDerivative(x);
  return Gelu(x);
}

// The same paper's approximation: x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2.
RUBATO_ALWAYS_INLINE float GeluTanh(float value) {
  const double x = value;
  double derivative;
  return static_cast<float>(x * activations_internal::SigmoidForFloat(
                                    2 * activations_internal::GeluInner(x), &derivative));
}
RUBATO_ALWAYS_INLINE double GeluTanh(double x) {
  return x / (1 + std::exp(-2 * activations_internal::GeluInner(x)));
}

// With s the sigmoid of twice the inner function: s + 2 x s' inner'.
RUBATO_ALWAYS_INLINE float GeluTanhDerivative(float value) {
  const double x = value;
  double derivative;
  const double s =
      activations_internal::SigmoidForFloat(2 * activations_internal::GeluInner(x), &derivative);
  return static_cast<float>(s + 2 * x * derivative * activations_internal::GeluInnerDerivative(x));
}
RUBATO_ALWAYS_INLINE double GeluTanhDerivative(double x) {
  const double t = std::tanh(activations_internal::GeluInner(x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * activations_internal::GeluInnerDerivative(x);
}

RUBATO_ALWAYS_INLINE float GeluTanhWithDerivative(float value, float* derivative) {
  const double x = value;
  double d;
  const double s =
      activations_internal::SigmoidForFloat(2 * activations_internal::GeluInner(x), &d);
  *derivative = static_cast<float>(s + 2 * x * d * activations_internal::GeluInnerDerivative(x));
  return static_cast<float>(x * s);
}
RUBATO_ALWAYS_INLINE double GeluTanhWithDerivative(double x, double* derivative) {
  *derivative = GeluTanhDerivative(x);
  return GeluTanh(x);
}

}  // namespace rubato

#endif  // RUBATO_TENSOR_CPU_ACTIVATIONS_H_
