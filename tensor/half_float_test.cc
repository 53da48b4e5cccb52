// Half floats against the wire's codec, whose conversions are written otherwise and tested by
// themselves.
#include "tensor/half_float.h"

#include <cmath>

#include "common/base/half.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

TEST(HalfFloat, AllValuesConvertToFloat) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    BFloat16 b;
    Float16 h;
    b.bits = h.bits = static_cast<uint16_t>(bits);
    const float expected_b = FromBf16(b.bits), expected_h = FromFp16(h.bits);
    if (std::isnan(expected_b)) {
      EXPECT_TRUE(std::isnan(static_cast<float>(b)));
    } else {
      EXPECT_EQ(static_cast<float>(b), expected_b);
    }
    if (std::isnan(expected_h)) {
      EXPECT_TRUE(std::isnan(static_cast<float>(h)));
    } else {
      EXPECT_EQ(static_cast<float>(h), expected_h);
    }
  }
}

TEST(HalfFloat, FloatsAreRoundedToTheNearest) {
  // Every 251st float, of both signs.
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 251) {
    const float value = FloatOf(static_cast<uint32_t>(bits));
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(FromBf16(BFloat16(value).bits)));
      EXPECT_TRUE(std::isnan(FromFp16(Float16(value).bits)));
      continue;
    }
    ASSERT_EQ(BFloat16(value).bits, ToBf16(value)) << value;
    ASSERT_EQ(Float16(value).bits, ToFp16(value)) << value;
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
