#include "tools/bench/convergence/band.h"

#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::Each;

TEST(BandTest, IsLeastMedianAndGreatestOnTheLinesBetweenPoints) {
  const Band band =
      BandOf({{{0, 0}, {60, 60}}, {{0, 10}, {30, 40}, {60, 10}}, {{0, 100}, {60, 40}}});
  ASSERT_EQ(band.x.size(), 61u);
  EXPECT_DOUBLE_EQ(band.x[0], 0);
  EXPECT_DOUBLE_EQ(band.x[60], 60);
  EXPECT_DOUBLE_EQ(band.low[0], 0);
  EXPECT_DOUBLE_EQ(band.middle[0], 10);
  EXPECT_DOUBLE_EQ(band.high[0], 100);
  // At 30: 30, 40 and 70.
  EXPECT_DOUBLE_EQ(band.low[30], 30);
  EXPECT_DOUBLE_EQ(band.middle[30], 40);
  EXPECT_DOUBLE_EQ(band.high[30], 70);
}

TEST(BandTest, ReachesFromWhereAllHaveBegunToWhereHalfGoOn) {
  const double nan = std::nan("");
  // The third has diverged.
  const Band band = BandOf({{{1, 5}, {9, 5}}, {{2, 5}, {8, 5}}, {{1, 5}, {3, 5}, {7, nan}}});
  ASSERT_FALSE(band.x.empty());
  EXPECT_EQ(band.x.front(), 2);
  EXPECT_EQ(band.x.back(), 8);
  EXPECT_THAT(band.low, Each(5));
  EXPECT_THAT(band.high, Each(5));
}

TEST(BandTest, NothingToDraw) {
  EXPECT_TRUE(BandOf({}).x.empty());
  EXPECT_TRUE(BandOf({{}, {{1, std::nan("")}}}).x.empty());
  EXPECT_TRUE(BandOf({{{std::nan(""), 1}}}).x.empty());
  EXPECT_TRUE(BandOf({{{1, 1}}, {{5, 1}, {6, 1}}, {{1, 1}, {2, 1}}}).x.empty());
}

// As of evaluations that fall on one moment.
TEST(BandTest, TwoValuesAtOnePlace) {
  const Band band = BandOf({{{0, 1}, {30, 1}, {30, 3}, {60, 3}}});
  ASSERT_EQ(band.low.size(), 61u);
  EXPECT_EQ(band.low[29], 1);
  EXPECT_EQ(band.low[31], 3);
}

}  // namespace
}  // namespace rubato
