// The types. The conversions have tests of their own (common/base/half_test.cc).
#include "tensor/half_float.h"

#include <cmath>

#include "gtest/gtest.h"

namespace rubato {
namespace {

TEST(HalfFloat, EveryValueComesBackFromFloat) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    BFloat16 b;
    Float16 h;
    b.bits = h.bits = static_cast<uint16_t>(bits);
    if (std::isnan(static_cast<float>(b))) {
      EXPECT_TRUE(std::isnan(static_cast<float>(BFloat16(static_cast<float>(b)))));
    } else {
      EXPECT_EQ(BFloat16(static_cast<float>(b)).bits, bits);
    }
    if (std::isnan(static_cast<float>(h))) {
      EXPECT_TRUE(std::isnan(static_cast<float>(Float16(static_cast<float>(h)))));
    } else {
      EXPECT_EQ(Float16(static_cast<float>(h)).bits, bits);
    }
  }
}

TEST(HalfFloat, TiesGoToEven) {
  // Halfway between 1 and the next, and between the next two.
  EXPECT_EQ(static_cast<float>(BFloat16(1 + 0x1p-8f)), 1);
  EXPECT_EQ(static_cast<float>(BFloat16(1 + 0x3p-8f)), 1 + 0x1p-6f);
  EXPECT_EQ(static_cast<float>(Float16(1 + 0x1p-11f)), 1);
  EXPECT_EQ(static_cast<float>(Float16(1 + 0x3p-11f)), 1 + 0x1p-9f);
  EXPECT_EQ(static_cast<float>(Float16(65519)), 65504);
  EXPECT_TRUE(std::isinf(static_cast<float>(Float16(65520))));
}

}  // namespace
}  // namespace rubato
