#include "server/process/left_over_thread.h"

#include <sched.h>

#include <thread>

#include "gtest/gtest.h"

namespace rubato {
namespace {

bool MayHaveLeftOverTime() {
  bool may = false;
  std::thread([&may] {
    const sched_param none = {};
    may = sched_setscheduler(0, SCHED_IDLE, &none) == 0;
  }).join();
  return may;
}

TEST(LeftOverThreadTest, DoesWorkInLeftOverTimeAndLeavesTheCallerItsOwn) {
  const int before = sched_getscheduler(0);
  ASSERT_NE(before, SCHED_IDLE);
  LeftOverThread thread;
  for (int i = 0; i < 3; ++i) {
    int found = -1;
    thread.Do([&found] { found = sched_getscheduler(0); });
    EXPECT_EQ(found, MayHaveLeftOverTime() ? SCHED_IDLE : before);
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
