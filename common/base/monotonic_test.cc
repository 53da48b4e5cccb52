#include "common/base/monotonic.h"

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "absl/time/clock.h"
#include "gtest/gtest.h"

// The wall clock, for this process, is stepped by so many seconds.
static std::atomic<time_t> g_step{0};

extern "C" int clock_gettime(clockid_t clock, struct timespec* time) {
  const long result = syscall(SYS_clock_gettime, clock, time);
  if (result == 0 && clock == CLOCK_REALTIME) time->tv_sec += g_step;
  return static_cast<int>(result);
}

namespace rubato {
namespace {

constexpr time_t kHour = 3600;

class MonotonicTest : public testing::TestWithParam<time_t> {
 protected:
  ~MonotonicTest() override { g_step = 0; }

  MonotonicMutex mutex_;
  bool flag_ ABSL_GUARDED_BY(mutex_) = false;
};

// What waits by the wall clock waits for an hour here, or not at all.
TEST_P(MonotonicTest, AWaitLastsAsLongAsItIsToldWhateverTheWallClockSays) {
  const absl::Time wall = absl::Now();
  const int64_t begin = MonotonicNanos();
  g_step = GetParam();
  EXPECT_GT(absl::AbsDuration(absl::Now() - wall), absl::Minutes(59));
  {
    MonotonicLock lock(&mutex_);
    EXPECT_FALSE(mutex_.AwaitFor(absl::Condition(&flag_), absl::Milliseconds(20)));
  }
  const int64_t waited = MonotonicNanos() - begin;
  EXPECT_GE(waited, 20'000'000);
  EXPECT_LT(waited, 1'000'000'000 * kHour / 2);
}

INSTANTIATE_TEST_SUITE_P(Steps, MonotonicTest, testing::Values(-kHour, kHour));

TEST_F(MonotonicTest, AWaitEndsWhenItsConditionHolds) {
  std::thread other([this] {
    MonotonicLock lock(&mutex_);
    flag_ = true;
  });
  {
    MonotonicLock lock(&mutex_, absl::Condition(&flag_));
    EXPECT_TRUE(flag_);
    EXPECT_TRUE(mutex_.AwaitUntil(absl::Condition(&flag_), absl::InfinitePast()));
  }
  other.join();
}

// One waiter's wait unlocks the mutex for another whose condition it has made true.
TEST_F(MonotonicTest, WhoWaitsWakesOthers) {
  bool answered = false;
  std::thread other([&] {
    MonotonicLock lock(&mutex_, absl::Condition(&flag_));
    answered = true;
  });
  {
    MonotonicLock lock(&mutex_);
    flag_ = true;
    mutex_.Await(absl::Condition(&answered));
    EXPECT_TRUE(answered);
  }
  other.join();
}

TEST_F(MonotonicTest, AWaitForeverHasNoEnd) {
  std::thread other([this] {
    MonotonicLock lock(&mutex_);
    flag_ = true;
  });
  {
    MonotonicLock lock(&mutex_);
    EXPECT_TRUE(mutex_.AwaitUntil(absl::Condition(&flag_), absl::InfiniteFuture()));
  }
  other.join();
}

}  // namespace
}  // namespace rubato
