// Half floats against their definition: a table of all values, in which the nearest is looked up.
#include "common/base/half.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "gtest/gtest.h"

namespace rubato {
namespace {

// Magnitudes of a format with so many bits of exponent and mantissa, by their bits; then where
// rounding leads to infinity: as if the exponents went on.
std::vector<double> Magnitudes(int exponent_bits, int mantissa_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  std::vector<double> values;
  for (int exponent = 0; exponent < (1 << exponent_bits) - 1; ++exponent) {
    for (int mantissa = 0; mantissa < 1 << mantissa_bits; ++mantissa) {
      const int whole = exponent == 0 ? mantissa : (1 << mantissa_bits) + mantissa;
      values.push_back(std::ldexp(whole, std::max(exponent, 1) - bias - mantissa_bits));
    }
  }
  values.push_back(std::ldexp(1, bias + 1));
  return values;
}

// The bits of the magnitude that is nearest, of two equally near the even one.
uint16_t Nearest(double magnitude, const std::vector<double>& magnitudes) {
  const auto above = std::lower_bound(magnitudes.begin(), magnitudes.end(), magnitude);
  if (above == magnitudes.end()) return static_cast<uint16_t>(magnitudes.size() - 1);
  const uint16_t high = static_cast<uint16_t>(above - magnitudes.begin());
  if (*above == magnitude) return high;
  const double to_high = *above - magnitude, to_low = magnitude - *(above - 1);
  if (to_high == to_low) return high % 2 == 0 ? high : high - 1;
  return to_high < to_low ? high : high - 1;
}

struct Format {
  std::vector<double> magnitudes;
  uint16_t (*to)(float);
  float (*from)(uint16_t);
};

std::vector<Format> Formats() {
  return {
      {Magnitudes(8, 7), [](float x) { return ToBf16(x); }, [](uint16_t x) { return FromBf16(x); }},
      {Magnitudes(5, 10), [](float x) { return ToFp16(x); },
       [](uint16_t x) { return FromFp16(x); }}};
}

TEST(HalfTest, EveryHalfFloatHasTheValueOfItsDefinition) {
  for (const Format& format : Formats()) {
    const uint32_t infinity = static_cast<uint32_t>(format.magnitudes.size() - 1);
    for (uint32_t bits = 0; bits < 0x8000; ++bits) {
      const float value = format.from(static_cast<uint16_t>(bits));
      const float negative = format.from(static_cast<uint16_t>(bits | 0x8000));
      if (bits > infinity) {
        EXPECT_TRUE(std::isnan(value) && std::isnan(negative)) << bits;
        continue;
      }
      const double expected = bits == infinity ? HUGE_VAL : format.magnitudes[bits];
      EXPECT_EQ(value, expected);
      EXPECT_EQ(negative, -expected);
      EXPECT_TRUE(std::signbit(negative));
    }
  }
}

// Every 1021st float of both signs, and all around the middle of two half floats.
TEST(HalfTest, FloatsAreRoundedToTheNearest) {
  for (const Format& format : Formats()) {
    std::vector<uint32_t> all;
    for (uint64_t bits = 0; bits < uint64_t{1} << 32; bits += 1021) {
      all.push_back(static_cast<uint32_t>(bits));
    }
    for (size_t i = 1; i < format.magnitudes.size(); ++i) {
      const float middle =
          static_cast<float>((format.magnitudes[i - 1] + format.magnitudes[i]) / 2);
      for (const uint32_t near : {0u, 1u, 2u}) all.push_back(BitsOf(middle) + near - 1);
    }
    for (const uint32_t bits : all) {
      const float value = FloatOf(bits);
      if (std::isnan(value)) {
        ASSERT_TRUE(std::isnan(format.from(format.to(value))));
        continue;
      }
      const uint32_t sign = std::signbit(value) ? 0x8000 : 0;
      ASSERT_EQ(format.to(value), Nearest(std::fabs(value), format.magnitudes) | sign) << value;
    }
  }
}

}  // namespace
}  // namespace rubato
