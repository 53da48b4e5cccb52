#include "common/base/random.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::ElementsAre;

// Known answers of Random123 1.14 (kat_vectors, philox4x32 with 10 rounds), for a zero counter and
// zero key.
TEST(PhiloxTest, GivesThePublishedAnswerForZeroes) {
  EXPECT_THAT(Philox(0, 0), ElementsAre(0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u));
}

TEST(KeyTest, DependsOnEveryPartAndTheirOrder) {
  EXPECT_NE(Key(1, "a", 2), Key(1, "a", 3));
  EXPECT_NE(Key(1, "a", 2), Key(2, "a", 2));
  EXPECT_NE(Key(1, "a", "b"), Key(1, "b", "a"));
}

TEST(RandomStreamTest, UniformFillsItsRangeEvenly) {
  RandomStream stream(Key(7, "test"));
  double sum = 0, squares = 0;
  constexpr int kDraws = 100000;
  for (int i = 0; i < kDraws; ++i) {
    const float x = stream.Uniform(-1, 3);
    ASSERT_GE(x, -1);
    ASSERT_LT(x, 3);
    sum += x;
    squares += x * x;
  }
  const double mean = sum / kDraws;
  // Five standard errors of a uniform distribution of width 4 about 1.
  EXPECT_NEAR(mean, 1, 5 * 1.1547 / 316);
  EXPECT_NEAR(squares / kDraws - mean * mean, 16.0 / 12, 0.03);
}

}  // namespace
}  // namespace rubato
