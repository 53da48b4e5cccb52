#include "server/coordinator/join_pace.h"

#include "gtest/gtest.h"

namespace rubato {
namespace {

TEST(JoinPaceTest, SomeChangesAtOnceAndFourASecondAfterThem) {
  JoinPace pace;
  absl::Time now = absl::UnixEpoch();
  for (int i = 0; i < JoinPace::kAtOnce; ++i) EXPECT_TRUE(pace.May(now)) << i;
  EXPECT_FALSE(pace.May(now));
  EXPECT_FALSE(pace.May(now += absl::Milliseconds(249)));
  EXPECT_TRUE(pace.May(now += absl::Milliseconds(1)));
  EXPECT_FALSE(pace.May(now));
  now += absl::Milliseconds(750);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(pace.May(now)) << i;
  EXPECT_FALSE(pace.May(now));
}

TEST(JoinPaceTest, AfterALongTimeNoMoreThanThoseAtOnce) {
  JoinPace pace;
  const absl::Time start = absl::UnixEpoch();
  EXPECT_TRUE(pace.May(start));
  const absl::Time now = start + absl::Hours(1);
  for (int i = 0; i < JoinPace::kAtOnce; ++i) EXPECT_TRUE(pace.May(now)) << i;
  EXPECT_FALSE(pace.May(now));
}

}  // namespace
}  // namespace rubato
