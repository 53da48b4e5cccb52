#include "server/process/left_over_thread.h"

#include <sched.h>

#include "gtest/gtest.h"

namespace rubato {
namespace {

TEST(LeftOverThreadTest, DoesWorkInLeftOverTimeAndLeavesTheCallerItsOwn) {
  const int before = sched_getscheduler(0);
  ASSERT_NE(before, SCHED_IDLE);
  LeftOverThread thread;
  for (int i = 0; i < 3; ++i) {
    int found = -1;
    thread.Do([&found] { found = sched_getscheduler(0); });
    EXPECT_EQ(found, SCHED_IDLE);
  }
  EXPECT_EQ(sched_getscheduler(0), before);
}

TEST(LeftOverThreadTest, EndsWithoutWork) { const LeftOverThread thread; }

TEST(LeftOverTimeTest, IsTriedAnewAfterAWhileInWhichItDidNotSuffice) {
  LeftOverTime time;
  const absl::Time begin = absl::FromUnixSeconds(100);
  EXPECT_TRUE(time.Suffices(begin));
  time.OnDone(begin, LeftOverTime::kPatience);
  EXPECT_TRUE(time.Suffices(begin));
  time.OnDone(begin, LeftOverTime::kPatience + absl::Milliseconds(1));
  EXPECT_FALSE(time.Suffices(begin + LeftOverTime::kUntilTriedAnew - absl::Milliseconds(1)));
  EXPECT_TRUE(time.Suffices(begin + LeftOverTime::kUntilTriedAnew));
}

}  // namespace
}  // namespace rubato
