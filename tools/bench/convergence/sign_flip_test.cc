#include "tools/bench/convergence/sign_flip.h"

#include <cmath>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::DoubleNear;
using ::testing::Pair;

// By recursion over the signs, in long double: another way than the one under test.
int64_t CountAsFar(const std::vector<double>& d, size_t at, long double sum, long double seen) {
  if (at == d.size()) return std::abs(sum) >= seen - 1e-15L ? 1 : 0;
  return CountAsFar(d, at + 1, sum + d[at], seen) + CountAsFar(d, at + 1, sum - d[at], seen);
}

double Enumerated(const std::vector<double>& d) {
  long double sum = 0;
  for (const double x : d) sum += x;
  return static_cast<double>(CountAsFar(d, 0, 0, std::abs(sum))) / std::pow(2.0, d.size());
}

std::vector<double> Draw(std::mt19937_64* random, int n, double mean, double deviation) {
  std::normal_distribution<double> normal(mean, deviation);
  std::vector<double> d(n);
  for (double& x : d) x = normal(*random);
  return d;
}

// Of four equal signs 2 of 16 choices are as far; the rest is arithmetic by hand.
TEST(SignFlipTest, KnownValues) {
  EXPECT_EQ(SignFlipP({}), 1);
  EXPECT_EQ(SignFlipP({1, 2, 3, 4}), 2 / 16.0);
  EXPECT_EQ(SignFlipP({-1, -2, -3, -4}), 2 / 16.0);
  EXPECT_EQ(SignFlipP({1, 2, 3, -4}), 14 / 16.0);
  EXPECT_EQ(SignFlipP({0, 0, 0}), 1);
  // Darwin's maize, as Fisher worked it out: 1,726 of 32,768 (differences in eighths of an inch).
  EXPECT_NEAR(SignFlipP({49, -67, 8, 16, 6, 23, 28, 41, 14, 29, 56, 24, 75, 60, -48}),
              1726.0 / 32768, 1e-12);
}

TEST(SignFlipTest, IsWhatEnumerationFinds) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 200; ++i) {
    std::vector<double> d = Draw(&random, 1 + i % 12, 0.5, 1);
    if (i % 3 == 0) d[0] = 0;
    EXPECT_EQ(SignFlipP(d), Enumerated(d)) << i;
  }
}

TEST(SignFlipTest, TheIntervalHoldsTheShiftsThatAreNotRejected) {
  std::mt19937_64 random(2);
  for (int i = 0; i < 100; ++i) {
    const std::vector<double> d = Draw(&random, 6 + i % 5, 1, 1);
    const auto [low, high] = SignFlipInterval(d, 0.05);
    const auto p_at = [&d](double shift) {
      std::vector<double> shifted = d;
      for (double& x : shifted) x -= shift;
      return SignFlipP(shifted);
    };
    ASSERT_LT(low, high);
    EXPECT_LE(p_at(low - 1e-6), 0.05) << i;
    EXPECT_GT(p_at(low + 1e-6), 0.05) << i;
    EXPECT_GT(p_at(high - 1e-6), 0.05) << i;
    EXPECT_LE(p_at(high + 1e-6), 0.05) << i;
  }
}

TEST(SignFlipTest, TheIntervalHoldsTheTruthAsOftenAsItSays) {
  std::mt19937_64 random(3);
  constexpr int kDraws = 1000;
  int outside = 0;
  for (int i = 0; i < kDraws; ++i) {
    const auto [low, high] = SignFlipInterval(Draw(&random, 10, 0.3, 0.05), 0.05);
    if (low > 0.3 || high < 0.3) ++outside;
  }
  const double three = 3 * std::sqrt(0.05 * 0.95 / kDraws);
  EXPECT_NEAR(static_cast<double>(outside) / kDraws, 0.05, three);
}

TEST(SignFlipTest, TooFewPairsLeaveTheIntervalOpen) {
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_THAT(SignFlipInterval({1, 2, 3}, 0.05), Pair(-infinity, infinity));
  EXPECT_THAT(SignFlipInterval({1, 1, 1, 1, 1, 1}, 0.05),
              Pair(DoubleNear(1, 1e-12), DoubleNear(1, 1e-12)));
}

// 2/2^n is the smallest p that n pairs can have.
TEST(SignFlipTest, PairsNeeded) {
  EXPECT_EQ(PairsNeeded(1, 0.05), 6);
  EXPECT_EQ(PairsNeeded(2, 0.05), 7);
  EXPECT_EQ(PairsNeeded(3, 0.05), 7);
  EXPECT_EQ(PairsNeeded(4, 0.05), 8);
  EXPECT_EQ(PairsNeeded(6, 0.05), 8);
}

// Holm's own example has four tests at 0.05: 0.01 < 0.0125 and 0.005 go, 0.03 > 0.025 stays and
// keeps 0.04 (0.04 alone would pass 0.05).
TEST(HolmTest, StopsAtTheFirstThatIsNotRejected) {
  const std::vector<HolmResult> results = Holm({0.01, 0.04, 0.03, 0.005}, 0.05);
  EXPECT_TRUE(results[0].rejected);
  EXPECT_FALSE(results[1].rejected);
  EXPECT_FALSE(results[2].rejected);
  EXPECT_TRUE(results[3].rejected);
  EXPECT_EQ(results[3].level, 0.05 / 4);
  EXPECT_EQ(results[0].level, 0.05 / 3);
  EXPECT_EQ(results[2].level, 0.05 / 2);
  EXPECT_EQ(results[1].level, 0.05 / 2);
}

}  // namespace
}  // namespace rubato
