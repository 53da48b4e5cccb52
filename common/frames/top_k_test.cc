#include "common/frames/top_k.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "common/base/random.h"
#include "common/base/status_matchers.h"
#include "common/frames/codec.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<float> ThereAndBack(const std::vector<float>& values, size_t k,
                                std::vector<uint32_t>* sent) {
  std::vector<char> bytes(EncodedBound(Codec::kTopK, k));
  EncodeTopK(values, k, bytes.data(), sent);
  const auto encoded = Encoded::Create(Codec::kTopK, bytes, values.size());
  EXPECT_TRUE(encoded.ok()) << encoded.status();
  std::vector<float> decoded(values.size(), 7);
  encoded->Decode(0, absl::MakeSpan(decoded));
  // Any cut gives the same.
  for (size_t begin = 0; begin < values.size(); begin += 7) {
    std::vector<float> part(std::min<size_t>(11, values.size() - begin), 7);
    encoded->Decode(begin, absl::MakeSpan(part));
    EXPECT_EQ(std::memcmp(part.data(), &decoded[begin], part.size() * sizeof(float)), 0) << begin;
  }
  return decoded;
}

TEST(TopK, SendsWhatASortWouldPutFirst) {
  for (size_t n : {1, 2, 50, 1000}) {
    RandomStream stream(Key(1, n));
    std::vector<float> values(n);
    for (float& value : values) {
      // Few magnitudes, so that there are ties.
      value = std::ldexp(static_cast<float>(stream.Below(20)) - 10, stream.Below(3));
    }
    for (size_t k : {size_t{0}, size_t{1}, n / 100, n / 3, n}) {
      std::vector<uint32_t> order(n);
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
        return std::abs(values[a]) > std::abs(values[b]);
      });
      order.resize(k);
      std::sort(order.begin(), order.end());
      std::vector<float> expected(n);
      for (uint32_t i : order) expected[i] = values[i];
      std::vector<uint32_t> sent;
      EXPECT_EQ(ThereAndBack(values, k, &sent), expected) << n << " " << k;
      EXPECT_EQ(sent, order) << n << " " << k;
    }
  }
}

TEST(TopK, CountsByDensityUpToWhereFloatsTakeNoMoreBytes) {
  EXPECT_EQ(TopKCount(65536, 0.01), 655u);
  EXPECT_EQ(TopKCount(10, 0.001), 1u);
  EXPECT_EQ(TopKCount(10, 0.4), 4u);   // 36 bytes
  EXPECT_EQ(TopKCount(10, 0.5), 10u);  // 44
  EXPECT_EQ(TopKCount(10, 1), 10u);
  EXPECT_EQ(TopKCount(2, 0.1), 2u);
  EXPECT_EQ(TopKCount(0, 0.5), 0u);
}

TEST(TopK, WhatIsNotFiniteGoesFirst) {
  std::vector<float> values(100, 1e38f);
  values[3] = std::numeric_limits<float>::quiet_NaN();
  values[50] = -HUGE_VALF;
  std::vector<uint32_t> sent;
  const std::vector<float> decoded = ThereAndBack(values, 2, &sent);
  EXPECT_THAT(sent, ElementsAre(3, 50));
  EXPECT_TRUE(std::isnan(decoded[3]));
  EXPECT_EQ(decoded[50], -HUGE_VALF);
}

TEST(TopK, BytesThatCannotBeItAreRefused) {
  const std::vector<float> values = {5, 4, 3, 2, 1};
  std::vector<char> bytes(EncodedBound(Codec::kTopK, 3));
  std::vector<uint32_t> sent;
  EncodeTopK(values, 3, bytes.data(), &sent);
  RUBATO_EXPECT_OK(Encoded::Create(Codec::kTopK, bytes, 5));
  const auto with = [&](size_t word, uint32_t number) {
    std::vector<char> changed = bytes;
    std::memcpy(&changed[4 * word], &number, sizeof(number));
    return Encoded::Create(Codec::kTopK, changed, 5).status();
  };
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  EXPECT_THAT(with(0, 2), IsError(kInvalid, HasSubstr("2 of 5 values")));
  EXPECT_THAT(with(0, 0xffffffff), IsError(kInvalid, HasSubstr("4294967295 of 5 values")));
  EXPECT_THAT(with(3, 5), IsError(kInvalid, HasSubstr("index 5")));
  EXPECT_THAT(with(2, 0), IsError(kInvalid, HasSubstr("index 0")));
  EXPECT_THAT(Encoded::Create(Codec::kTopK, bytes, 2).status(),
              IsError(kInvalid, HasSubstr("3 of 2 values")));
  EXPECT_THAT(Encoded::Create(Codec::kTopK, absl::MakeConstSpan(bytes).first(3), 5).status(),
              IsError(kInvalid, HasSubstr("3 bytes")));
}

}  // namespace
}  // namespace rubato
