#include "tensor/cpu/exp.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "gtest/gtest.h"

namespace rubato {
namespace {

TEST(Exp, IsWithinItsErrorOfTheDoublePrecisionExponential) {
  // Every 97th float of the range, of both signs: 44 million.
  double worst = 0;
  for (float sign : {1.0f, -1.0f}) {
    const float end = sign > 0 ? 88.37626f : 87.33654f;
    uint32_t end_bits;
    std::memcpy(&end_bits, &end, sizeof end);
    for (uint32_t bits = 0; bits <= end_bits; bits += 97) {
      float x;
      std::memcpy(&x, &bits, sizeof x);
      x *= sign;
      const double exact = std::exp(static_cast<double>(x));
      worst = std::max(worst, std::abs(Exp(x) - exact) / exact);
    }
  }
  EXPECT_LT(worst, 1e-7);  // found: 0.81e-7
}

TEST(Exp, EndsInZeroAndInfinity) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(Exp(-88.0f), 0.0f);
  EXPECT_EQ(Exp(-std::numeric_limits<float>::max()), 0.0f);
  EXPECT_EQ(Exp(-infinity), 0.0f);
  EXPECT_EQ(Exp(89.0f), infinity);
  EXPECT_EQ(Exp(infinity), infinity);
  EXPECT_EQ(Exp(0.0f), 1.0f);
  EXPECT_EQ(Exp(-0.0f), 1.0f);
  EXPECT_TRUE(std::isnan(Exp(std::numeric_limits<float>::quiet_NaN())));
}

}  // namespace
}  // namespace rubato
