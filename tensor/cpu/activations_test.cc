#include "tensor/cpu/activations.h"

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "gtest/gtest.h"

namespace rubato {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// The distance of float neighbours about a value, that of the subnormal ones at least.
double Ulp(double value) {
  int exponent;
  std::frexp(value, &exponent);
  return std::ldexp(1.0, std::max(exponent - 24, -149));
}

// The greatest error, in units in the last place, over every 397th float of [-limit, limit]: 5
// million of them.
double WorstUlps(float limit, const std::function<float(float)>& f,
                 const std::function<double(double)>& reference) {
  uint32_t end;
  std::memcpy(&end, &limit, sizeof end);
  double worst = 0;
  for (uint32_t bits = 0; bits <= end; bits += 397) {
    float x;
    std::memcpy(&x, &bits, sizeof x);
    for (const float signed_x : {x, -x}) {
      const double exact = reference(signed_x);
      worst = std::max(worst, std::abs(f(signed_x) - exact) / Ulp(exact));
    }
  }
  return worst;
}

// References in double with a relative error of a few units in its last place.
double SigmoidOf(double x) {
  return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x));
}
double GeluOf(double x) { return 0.5 * x * std::erfc(-x * std::sqrt(0.5)); }
double GeluTanhOf(double x) {
  const double inner = std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
  return x * SigmoidOf(2 * inner);
}

TEST(Activations, AreTheNearestFloatsButFor2HundredthsOfAUnit) {
  EXPECT_LT(WorstUlps(
                120, [](float x) { return Sigmoid(x); }, SigmoidOf),
            0.52);
  EXPECT_LT(WorstUlps(
                30, [](float x) { return Tanh(x); }, [](double x) { return std::tanh(x); }),
            0.52);
  EXPECT_LT(WorstUlps(
                16, [](float x) { return GeluTanh(x); }, GeluTanhOf),
            0.52);
}

// In float32 throughout; PyTorch's formula, 1 + erf, loses all digits where x is below -5.
TEST(Activations, GeluIsWithinSomeUnitsInTheLastPlace) {
  EXPECT_LT(WorstUlps(
                3, [](float x) { return Gelu(x); }, GeluOf),
            10);
  EXPECT_LT(WorstUlps(
                13, [](float x) { return Gelu(x); }, GeluOf),
            10);
  for (float x = -13; x > -40; x -= 0.25f) EXPECT_NEAR(Gelu(x), GeluOf(x), 1e-36) << x;
}

// Derivatives pass through 0, near which only an error beside the terms' size means anything.
double WorstError(float limit, const std::function<float(float)>& f,
                  const std::function<double(double)>& reference) {
  double worst = 0;
  for (int i = -1000000; i <= 1000000; ++i) {
    const float x = limit * (i / 1e6f);
    worst = std::max(worst, std::abs(f(x) - reference(x)));
  }
  return worst;
}

TEST(Activations, DerivativesAreThoseOfTheFormulas) {
  EXPECT_LT(WorstError(
                16, [](float x) { return GeluDerivative(x); },
                [](double x) {
                  return 0.5 * std::erfc(-x * std::sqrt(0.5)) +
                         x * std::exp(-0.5 * x * x) / std::sqrt(2 * M_PI);
                }),
            2.5e-7);
  EXPECT_LT(WorstError(
                16, [](float x) { return GeluTanhDerivative(x); },
                [](double x) {
                  const double c = std::sqrt(2 / M_PI);
                  const double t = std::tanh(c * (x + 0.044715 * x * x * x));
                  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * c * (1 + 3 * 0.044715 * x * x);
                }),
            7e-8);
}

TEST(Activations, HaveTheirLimits) {
  EXPECT_EQ(Sigmoid(0.0f), 0.5f);
  EXPECT_EQ(Sigmoid(kInfinity), 1.0f);
  EXPECT_EQ(Sigmoid(-kInfinity), 0.0f);
  EXPECT_EQ(Sigmoid(-3e38f), 0.0f);
  EXPECT_EQ(Tanh(kInfinity), 1.0f);
  EXPECT_EQ(Tanh(-kInfinity), -1.0f);
  EXPECT_EQ(Tanh(-3e38f), -1.0f);
  EXPECT_EQ(Tanh(0x1p-149f), 0x1p-149f);
  EXPECT_EQ(Gelu(kInfinity), kInfinity);
  EXPECT_EQ(Gelu(3e38f), 3e38f);
  EXPECT_EQ(Gelu(-3e38f), 0.0f);
  EXPECT_EQ(GeluDerivative(3e38f), 1.0f);
  EXPECT_EQ(GeluDerivative(-3e38f), 0.0f);
  EXPECT_EQ(GeluTanh(kInfinity), kInfinity);
  EXPECT_EQ(GeluTanh(3e38f), 3e38f);
  EXPECT_EQ(GeluTanh(-3e38f), 0.0f);
  EXPECT_EQ(GeluTanhDerivative(3e38f), 1.0f);
  EXPECT_EQ(GeluTanhDerivative(-3e38f), 0.0f);
  for (const float zero : {0.0f, -0.0f}) {
    EXPECT_EQ(std::signbit(Tanh(zero)), std::signbit(zero));
    EXPECT_EQ(Tanh(zero), 0);
    EXPECT_EQ(Gelu(zero), 0);
    EXPECT_EQ(GeluDerivative(zero), 0.5f);
  }
}

TEST(Activations, NaNStaysNaN) {
  for (float (*f)(float) :
       {+[](float x) { return Sigmoid(x); }, +[](float x) { return Tanh(x); },
        +[](float x) { return Gelu(x); }, +[](float x) { return GeluDerivative(x); },
        +[](float x) { return GeluTanh(x); }, +[](float x) { return GeluTanhDerivative(x); }}) {
    EXPECT_TRUE(std::isnan(f(kNaN)));
  }
}

}  // namespace
}  // namespace rubato
