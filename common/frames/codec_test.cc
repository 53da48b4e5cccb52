#include "common/frames/codec.h"

#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "common/base/half.h"
#include "common/base/isa.h"
#include "common/base/random.h"
#include "common/base/status_matchers.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::HasSubstr;

constexpr Codec kDense[] = {Codec::kFloat32, Codec::kBf16, Codec::kFp16, Codec::kInt8};

std::vector<Isa> Levels() {
  std::vector<Isa> levels;
  for (Isa isa : {Isa::kGeneric, Isa::kAvx2, Isa::kAvx512}) {
    if (isa <= DetectIsa()) levels.push_back(isa);
  }
  return levels;
}

// Over `magnitudes` powers of two below 1.
std::vector<float> RandomFloats(uint64_t key, size_t n, uint32_t magnitudes) {
  RandomStream stream(key);
  std::vector<float> values(n);
  for (float& value : values) {
    value = std::ldexp(stream.Uniform(-1, 1), -static_cast<int>(stream.Below(magnitudes)));
  }
  return values;
}

std::vector<char> EncodeAll(Codec codec, uint64_t key, const std::vector<float>& values) {
  std::vector<char> bytes(EncodedBound(codec, values.size()) + 1, 'x');
  Encode(codec, key, values, bytes.data());
  EXPECT_EQ(bytes.back(), 'x') << "wrote past the end";
  bytes.pop_back();
  return bytes;
}

std::vector<float> DecodeAll(Codec codec, const std::vector<char>& bytes, size_t n) {
  const absl::StatusOr<Encoded> encoded = Encoded::Create(codec, bytes, n);
  EXPECT_TRUE(encoded.ok()) << encoded.status();
  std::vector<float> values(n + 1, 7);
  encoded->Decode(0, absl::MakeSpan(values).first(n));
  EXPECT_EQ(values.back(), 7) << "wrote past the end";
  values.pop_back();
  return values;
}

std::vector<float> ThereAndBack(Codec codec, uint64_t key, const std::vector<float>& values) {
  return DecodeAll(codec, EncodeAll(codec, key, values), values.size());
}

class CodecTest : public testing::Test {
 protected:
  void TearDown() override { SetIsa(DetectIsa()); }
};

TEST_F(CodecTest, EveryHalfFloatHasTheValueOfIeee754) {
  for (uint32_t half = 0; half < 0x10000; ++half) {
    const int exponent = (half >> 10) & 31;
    const int mantissa = half & 1023;
    const double sign = half & 0x8000 ? -1 : 1;
    const float decoded = FromFp16(static_cast<uint16_t>(half));
    if (exponent == 31 && mantissa != 0) {
      EXPECT_TRUE(std::isnan(decoded)) << half;
      EXPECT_TRUE(std::isnan(FromFp16(ToFp16(decoded)))) << half;
      continue;
    }
    const double expected = exponent == 31  ? sign * HUGE_VAL
                            : exponent == 0 ? sign * std::ldexp(mantissa, -24)
                                            : sign * std::ldexp(1024 + mantissa, exponent - 25);
    EXPECT_EQ(decoded, expected) << half;
    EXPECT_EQ(std::signbit(decoded), half >= 0x8000) << half;
    EXPECT_EQ(ToFp16(decoded), half);
  }
}

// The processor's own conversion.
__attribute__((target("f16c"))) uint16_t ToFp16InHardware(float value) {
  return static_cast<uint16_t>(_cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT));
}

TEST_F(CodecTest, Fp16RoundsAsTheProcessorDoes) {
  if (!__builtin_cpu_supports("f16c")) GTEST_SKIP() << "this processor has no F16C";
  std::vector<float> values = {0, -0.0f, HUGE_VALF, -HUGE_VALF, 0x1p-149f, 0x1p-126f};
  for (uint32_t half = 0; half < 0x7c00; ++half) {
    const float low = FromFp16(static_cast<uint16_t>(half));
    const float high = half + 1 == 0x7c00 ? 65536 : FromFp16(static_cast<uint16_t>(half + 1));
    const float middle = low + (high - low) / 2;
    for (float value : {low, middle, std::nextafter(middle, 0.0f), std::nextafter(middle, high)}) {
      values.push_back(value);
      values.push_back(-value);
    }
  }
  RandomStream stream(1);
  for (int i = 0; i < 1000000; ++i) values.push_back(FloatOf(stream.Bits()));
  for (float value : values) {
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(FromFp16(ToFp16(value))));
    } else {
      EXPECT_EQ(ToFp16(value), ToFp16InHardware(value)) << value;
    }
  }
}

TEST_F(CodecTest, Bf16IsTheNearestOfTheTwoNeighboursAndTiesGoToEven) {
  RandomStream stream(2);
  for (int i = 0; i < 1000000; ++i) {
    uint32_t bits = stream.Bits();
    if (i % 4 == 0) bits = (bits & 0xffff0000) | 0x8000;  // a tie
    const float value = FloatOf(bits);
    const uint16_t encoded = ToBf16(value);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(FromBf16(encoded))) << bits;
      continue;
    }
    const uint16_t toward_zero = static_cast<uint16_t>(bits >> 16);
    const uint16_t away = static_cast<uint16_t>(toward_zero + 1);
    // In units of the last place that is dropped: exact whatever the exponent.
    const uint32_t rest = bits & 0xffff;
    const bool up = rest > 0x8000 || (rest == 0x8000 && (toward_zero & 1));
    EXPECT_EQ(encoded, up ? away : toward_zero) << bits;
  }
}

TEST_F(CodecTest, EveryLevelAndEveryCutGivesEqualBits) {
  for (Codec codec : kDense) {
    for (size_t n : {size_t{0}, size_t{1}, size_t{127}, size_t{128}, size_t{129}, size_t{1000}}) {
      const std::vector<float> values = RandomFloats(Key(3, n), n, 30);
      SetIsa(Isa::kGeneric);
      const std::vector<char> bytes = EncodeAll(codec, 9, values);
      const std::vector<float> decoded = DecodeAll(codec, bytes, n);
      for (Isa isa : Levels()) {
        SetIsa(isa);
        EXPECT_EQ(EncodeAll(codec, 9, values), bytes) << CodecName(codec) << " " << IsaName(isa);
        const absl::StatusOr<Encoded> encoded = Encoded::Create(codec, bytes, n);
        RUBATO_ASSERT_OK(encoded);
        for (size_t begin = 0; begin < n; begin += 13) {
          std::vector<float> part(std::min<size_t>(13 + begin % 7, n - begin));
          encoded->Decode(begin, absl::MakeSpan(part));
          EXPECT_TRUE(std::equal(part.begin(), part.end(), decoded.begin() + begin))
              << CodecName(codec) << " " << IsaName(isa) << " from " << begin;
        }
      }
    }
  }
}

TEST_F(CodecTest, BytesMayLieAtAnyAddress) {
  for (Codec codec : kDense) {
    const std::vector<float> values = RandomFloats(4, 300, 10);
    const std::vector<char> bytes = EncodeAll(codec, 1, values);
    for (size_t shift = 1; shift < 8; ++shift) {
      std::vector<char> shifted(shift + bytes.size());
      Encode(codec, 1, values, &shifted[shift]);
      EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), shifted.begin() + shift));
      const auto encoded =
          Encoded::Create(codec, absl::MakeConstSpan(shifted).subspan(shift), values.size());
      RUBATO_ASSERT_OK(encoded);
      std::vector<float> decoded(values.size());
      encoded->Decode(0, absl::MakeSpan(decoded));
      EXPECT_EQ(decoded, DecodeAll(codec, bytes, values.size())) << CodecName(codec);
    }
  }
}

TEST_F(CodecTest, Fp16KeepsElevenBitsOfAnyMagnitude) {
  for (int exponent : {-140, -120, -60, -24, 0, 10, 16, 60, 127}) {
    std::vector<float> values = RandomFloats(5, 500, 1);
    for (float& value : values) value = std::ldexp(value, exponent);
    const std::vector<float> decoded = ThereAndBack(Codec::kFp16, 0, values);
    float largest = 0;
    for (float value : values) largest = std::max(largest, std::abs(value));
    for (size_t i = 0; i < values.size(); ++i) {
      // Half a unit in the last of 11 bits; for the small ones, 2^-25 of the scale, which is at
      // most largest / 2^14; below 2^-126 half the smallest step that the scale allows.
      const double bound = std::max({std::abs(double{values[i]}) * 0x1p-11,
                                     std::ldexp(double{largest}, -39), std::ldexp(1.0, -111 - 25)});
      EXPECT_LE(std::abs(double{decoded[i]} - values[i]), bound) << exponent << " " << values[i];
    }
  }
}

TEST_F(CodecTest, Int8RoundsToANeighbourByThePhiloxDrawOfItsPlace) {
  const size_t n = 1000;
  const uint64_t key = Key(7, "int8");
  const std::vector<float> values = RandomFloats(6, n, 12);
  float largest = 0;
  for (float value : values) largest = std::max(largest, std::abs(value));
  const std::vector<char> bytes = EncodeAll(Codec::kInt8, key, values);
  float scale;
  std::memcpy(&scale, bytes.data(), sizeof(scale));
  EXPECT_FLOAT_EQ(scale, largest / 127);
  int differences = 0;
  for (size_t i = 0; i < n; ++i) {
    // The i-th draw, from the generator that the rest of the project uses.
    const size_t place = i % 128;
    const uint32_t word = Philox(key, i / 128 * 16 + place % 16)[place / 32];
    const double draw = ((place / 16) % 2 ? word >> 16 : word & 0xffff) / 65536.0;
    const double exact = double{values[i]} * 127 / largest + draw;
    const int expected = static_cast<int>(std::floor(exact));
    const int found = static_cast<int8_t>(bytes[4 + i]);
    // In float32 the floor may fall on the other side of an integer that is 2^-15 away.
    if (found != expected) {
      ++differences;
      EXPECT_LT(std::abs(exact - std::round(exact)), 0x1p-14) << i;
    }
  }
  EXPECT_LE(differences, 3);
}

TEST_F(CodecTest, Int8IsRightOnAverage) {
  const std::vector<float> values = {1, 0.3f, -0.3f, 0.003f, -0.0077f, 0.9999f, -1, 0};
  const int kTimes = 20000;
  std::vector<double> sums(values.size());
  for (int time = 0; time < kTimes; ++time) {
    const std::vector<float> decoded = ThereAndBack(Codec::kInt8, Key(8, time), values);
    for (size_t i = 0; i < values.size(); ++i) sums[i] += decoded[i];
  }
  for (size_t i = 0; i < values.size(); ++i) {
    // A draw's deviation is at most half a step of 1/127; five of the mean's.
    EXPECT_NEAR(sums[i] / kTimes, values[i], 5 * 0.5 / 127 / std::sqrt(kTimes)) << values[i];
  }
}

TEST_F(CodecTest, ZerosStayZeros) {
  const std::vector<float> zeros(200);
  for (Codec codec : kDense) EXPECT_EQ(ThereAndBack(codec, 1, zeros), zeros) << CodecName(codec);
}

TEST_F(CodecTest, WhatIsNotFiniteStaysVisible) {
  for (Codec codec : kDense) {
    for (float bad : {HUGE_VALF, -HUGE_VALF, std::numeric_limits<float>::quiet_NaN()}) {
      for (Isa isa : Levels()) {
        SetIsa(isa);
        std::vector<float> values = RandomFloats(9, 100, 4);
        values[77] = bad;
        const std::vector<float> decoded = ThereAndBack(codec, 1, values);
        EXPECT_FALSE(std::isfinite(decoded[77])) << CodecName(codec) << " " << bad;
      }
    }
  }
}

TEST_F(CodecTest, BytesOfAnotherLengthAreRefused) {
  for (Codec codec : kDense) {
    const std::vector<char> bytes(EncodedBound(codec, 10) + 1);
    for (size_t size : {size_t{0}, bytes.size() - 2, bytes.size()}) {
      EXPECT_THAT(Encoded::Create(codec, absl::MakeConstSpan(bytes).first(size), 10).status(),
                  IsError(absl::StatusCode::kInvalidArgument, HasSubstr("10 values take")))
          << CodecName(codec);
    }
  }
}

}  // namespace
}  // namespace rubato
