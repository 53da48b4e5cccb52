#include "common/base/rate_limit.h"

#include "gtest/gtest.h"

namespace rubato {
namespace {

constexpr int kAtOnce = 16;
constexpr absl::Duration kBetween = absl::Milliseconds(250);

TEST(RateLimitTest, SomeAtOnceAndFourASecondAfterThem) {
  RateLimit limit(kAtOnce, kBetween);
  absl::Time now = absl::UnixEpoch();
  for (int i = 0; i < kAtOnce; ++i) EXPECT_EQ(limit.Wait(now), absl::ZeroDuration()) << i;
  EXPECT_EQ(limit.Wait(now), kBetween);
  EXPECT_EQ(limit.Wait(now += absl::Milliseconds(249)), absl::Milliseconds(1));
  EXPECT_EQ(limit.Wait(now += absl::Milliseconds(1)), absl::ZeroDuration());
  EXPECT_EQ(limit.Wait(now), kBetween);
  now += absl::Milliseconds(750);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(limit.Wait(now), absl::ZeroDuration()) << i;
  EXPECT_EQ(limit.Wait(now), kBetween);
}

TEST(RateLimitTest, AfterALongTimeNoMoreThanThoseAtOnce) {
  RateLimit limit(kAtOnce, kBetween);
  const absl::Time start = absl::UnixEpoch();
  EXPECT_EQ(limit.Wait(start), absl::ZeroDuration());
  const absl::Time now = start + absl::Hours(1);
  for (int i = 0; i < kAtOnce; ++i) EXPECT_EQ(limit.Wait(now), absl::ZeroDuration()) << i;
  EXPECT_EQ(limit.Wait(now), kBetween);
}

}  // namespace
}  // namespace rubato
