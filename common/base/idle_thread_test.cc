#include "common/base/idle_thread.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <thread>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::Pair;

// The policy and the nice value of the calling thread, as the system has them.
std::pair<int, int> PriorityOfThisThread() {
  const auto thread = static_cast<id_t>(syscall(SYS_gettid));
  return {sched_getscheduler(static_cast<pid_t>(thread)), getpriority(PRIO_PROCESS, thread)};
}

TEST(IdleThread, HasThePriorityOfIdleTimeAndLeavesTheCallersAsItIs) {
  const std::pair<int, int> before = PriorityOfThisThread();
  std::pair<int, int> within;
  IdleThread idle;
  idle.Run([&] { within = PriorityOfThisThread(); });
  EXPECT_THAT(within, Pair(SCHED_IDLE, 19));
  EXPECT_EQ(PriorityOfThisThread(), before);
}

TEST(IdleThread, DoesOneThingAfterTheOther) {
  int done = 0;
  IdleThread idle;
  std::thread::id first, second;
  idle.Run([&] { first = (++done, std::this_thread::get_id()); });
  EXPECT_EQ(done, 1);
  idle.Run([&] { second = (++done, std::this_thread::get_id()); });
  EXPECT_EQ(done, 2);
  EXPECT_EQ(first, second);
  EXPECT_NE(first, std::this_thread::get_id());
}

TEST(GoToBackground, KeepsAShareIfAskedTo) {
  std::pair<int, int> within;
  std::thread([&] {
    GoToBackground(Background::kShares);
    within = PriorityOfThisThread();
  }).join();
  EXPECT_THAT(within, Pair(SCHED_OTHER, 19));
}

}  // namespace
}  // namespace rubato
