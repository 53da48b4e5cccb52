#include "common/job/scalar.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "common/base/random.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

TEST(ScalarTest, ReadsNumbersOnlyAsTheyAreUsuallyWritten) {
  EXPECT_EQ(ParseInt("0"), 0);
  EXPECT_EQ(ParseInt("-9223372036854775808"), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(ParseInt("9223372036854775807"), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(ParseUint("18446744073709551615"), std::numeric_limits<uint64_t>::max());
  for (const char* text : {"", "-", "1.5", "1.0", "1e3", "010", "+1", " 1", "1 ", "0x10", "1_000",
                           "9223372036854775808", "-9223372036854775809", "one"}) {
    EXPECT_EQ(ParseInt(text), std::nullopt) << text;
  }
  for (const char* text : {"-1", "-0", "18446744073709551616", ""}) {
    EXPECT_EQ(ParseUint(text), std::nullopt) << text;
  }

  EXPECT_EQ(ParseNumber("3"), 3.0);
  EXPECT_EQ(ParseNumber("-.5"), -0.5);
  EXPECT_EQ(ParseNumber("5."), 5.0);
  EXPECT_EQ(ParseNumber("1E-3"), 1e-3);
  EXPECT_EQ(ParseNumber("5.0e-4"), 5e-4);
  for (const char* text : {"", ".", "nan", ".nan", "inf", ".inf", "-inf", "infinity", "1e999",
                           "-1e999", "1e-999", "1e", "0x1p3", "1,5", "1 000", "+1", "1f"}) {
    EXPECT_EQ(ParseNumber(text), std::nullopt) << text;
  }
}

TEST(ScalarTest, ReadsDurationsInSeconds) {
  EXPECT_EQ(ParseDuration("5s"), 5.0);
  EXPECT_EQ(ParseDuration("10m"), 600.0);
  EXPECT_EQ(ParseDuration("1.5h"), 5400.0);
  EXPECT_EQ(ParseDuration("2d"), 172800.0);
  EXPECT_EQ(ParseDuration("200ms"), 0.2);
  EXPECT_EQ(ParseDuration("5 s"), 5.0);
  EXPECT_EQ(ParseDuration("7"), 7.0);
  EXPECT_EQ(ParseDuration("1e3s"), 1000.0);
  for (const char* text : {"", "s", "5x", "5S", "5sec", "5s5", "1h30m", "s5", "infs", "1e308d"}) {
    EXPECT_EQ(ParseDuration(text), std::nullopt) << text;
  }
  EXPECT_EQ(FormatDuration(60), "1m");
  EXPECT_EQ(FormatDuration(90), "90s");
  EXPECT_EQ(FormatDuration(5400), "90m");
  EXPECT_EQ(FormatDuration(604800), "7d");
  EXPECT_EQ(FormatDuration(0.2), "200ms");
  EXPECT_EQ(FormatDuration(1.5), "1.5s");
}

TEST(ScalarTest, ReadsSizesInBytes) {
  EXPECT_EQ(ParseSize("64"), 64);
  EXPECT_EQ(ParseSize("64B"), 64);
  EXPECT_EQ(ParseSize("256KiB"), 262144);
  EXPECT_EQ(ParseSize("1.5MiB"), 1572864);
  EXPECT_EQ(ParseSize("2GiB"), int64_t{2} << 30);
  EXPECT_EQ(ParseSize("1TiB"), int64_t{1} << 40);
  for (const char* text : {"", "KiB", "256KB", "256kb", "256K", "1.5", "0.0001KiB", "1e30TiB"}) {
    EXPECT_EQ(ParseSize(text), std::nullopt) << text;
  }
  EXPECT_EQ(FormatSize(262144), "256KiB");
  EXPECT_EQ(FormatSize(1048576), "1MiB");
  EXPECT_EQ(FormatSize(1048577), "1048577");
}

TEST(ScalarTest, WhatIsWrittenIsReadBackToTheLastBit) {
  RandomStream random(Key(1, "scalar"));
  for (int i = 0; i < 100000; ++i) {
    const uint64_t bits = (uint64_t{random.Bits()} << 32) | random.Bits();
    double value;
    std::memcpy(&value, &bits, sizeof(value));
    if (!std::isfinite(value)) continue;
    EXPECT_EQ(ParseNumber(FormatNumber(value)), value) << FormatNumber(value);
    EXPECT_EQ(ParseDuration(FormatDuration(value)), value) << FormatDuration(value);
    const double plain = random.Below(1000000) / 1000.0;  // as a person would write it
    EXPECT_EQ(ParseDuration(FormatDuration(plain)), plain) << FormatDuration(plain);
    const int64_t size = static_cast<int64_t>(bits >> random.Below(64)) &
                         std::numeric_limits<int64_t>::max() & ~int64_t{1023};
    EXPECT_EQ(ParseSize(FormatSize(size)), size) << FormatSize(size);
  }
}

}  // namespace
}  // namespace rubato
