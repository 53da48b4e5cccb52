// Smooth functions of one value and their derivatives. For float they are computed in double and
// rounded once: by additions, multiplications, divisions and bits only, without a branch, so that
// they vectorise and give equal bits at every level; the C library promises neither. Relative
// errors before the rounding are below 1e-9, so that results are within 0.52 units in the last
// place. For double they are the C library's.
#ifndef RUBATO_TENSOR_CPU_ACTIVATIONS_H_
#define RUBATO_TENSOR_CPU_ACTIVATIONS_H_

#include <cmath>
#include <cstdint>

#include "common/isa.h"

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

// The normal distribution's P(X > u) / e^(-u^2 / 2) for u >= 0, i.e. erfcx(u / sqrt(2)) / 2: a
// polynomial in 1 / (u + 3.5), through its values at 13 Chebyshev nodes over u in [0, 15]. Beyond
// 15, where P(X > u) is below all floats, it is that of 15.
RUBATO_ALWAYS_INLINE double ScaledNormalTail(double u) {
  u = Select(u > 15, 15, u);
  const double t = 0x1.1444444444444p+3 / (u + 3.5) - 0x1.7777777777777p+0;  // in [-1, 1]
  double p = 2.3582081130449607e-07;
  p = p * t + 2.712086298903299e-08;
  p = p * t + -3.1856960482027627e-06;
  p = p * t + 1.8072831722772402e-06;
  p = p * t + 3.5873900378118044e-05;
  p = p * t + -3.1533590171082324e-05;
  p = p * t + -0.0004946197922383488;
  p = p * t + -8.489947739958841e-05;
  p = p * t + 0.008523689883512476;
  p = p * t + 0.04073680418137077;
  p = p * t + 0.10848097624582956;
  p = p * t + 0.19613804999012766;
  return p * t + 0.14669677414185914;
}

// P(X <= x) of the normal distribution, relative error below 1e-9 on either side. *gauss becomes
// e^(-x^2 / 2).
RUBATO_ALWAYS_INLINE double NormalDistribution(double x, double* gauss) {
  const double exponent = -0.5 * (x * x);  // x^2 is exact
  *gauss = Select(exponent < -708, 0, ExpForFloat(exponent));
  const double tail = *gauss * ScaledNormalTail(__builtin_fabs(x));
  return Select(x > 0, 1 - tail, tail);
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
  double gauss;
  return static_cast<float>(x * activations_internal::NormalDistribution(x, &gauss));
}
RUBATO_ALWAYS_INLINE double Gelu(double x) {
  return 0.5 * x * std::erfc(-x * activations_internal::kSqrtHalf);
}

// P(X <= x) + x e^(-x^2 / 2) / sqrt(2 pi).
RUBATO_ALWAYS_INLINE float GeluDerivative(float x) {
  double gauss;
  const double p = activations_internal::NormalDistribution(x, &gauss);
  return static_cast<float>(p + x * (activations_internal::kInverseSqrt2Pi * gauss));
}
RUBATO_ALWAYS_INLINE double GeluDerivative(double x) {
  return 0.5 * std::erfc(-x * activations_internal::kSqrtHalf) +
         x * activations_internal::kInverseSqrt2Pi * std::exp(-0.5 * x * x);
}

// Both of these at the price of one.
RUBATO_ALWAYS_INLINE float GeluWithDerivative(float x, float* derivative) {
  double gauss;
  const double p = activations_internal::NormalDistribution(x, &gauss);
  *derivative = static_cast<float>(p + x * (activations_internal::kInverseSqrt2Pi * gauss));
  return static_cast<float>(x * p);
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
