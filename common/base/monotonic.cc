#include "common/base/monotonic.h"

#include <algorithm>
#include <chrono>

namespace rubato {

int64_t MonotonicNanos() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

absl::Time MonotonicNow() { return absl::FromUnixNanos(MonotonicNanos()); }

void MonotonicMutex::WakeWaiters() {
  for (Waiter* const waiter : waiters_) {
    // While it is locked: a waiter ends with its wait.
    if (waiter->condition.Eval()) waiter->wake.notify_one();
  }
}

void MonotonicMutex::Unlock() {
  WakeWaiters();
  mutex_.unlock();
}

bool MonotonicMutex::AwaitUntil(const absl::Condition& condition, absl::Time deadline) {
  if (condition.Eval()) return true;
  WakeWaiters();  // this wait unlocks
  std::unique_lock<std::mutex> lock(mutex_, std::adopt_lock);
  Waiter waiter{condition, {}};
  const auto place = waiters_.insert(waiters_.end(), &waiter);
  // A year at most: the sum of a clock and of what is forever would overflow.
  const absl::Duration left = std::min(deadline - MonotonicNow(), absl::Hours(24 * 365));
  const auto end = std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(left);
  const bool holds = waiter.wake.wait_until(lock, end, [&] { return condition.Eval(); });
  waiters_.erase(place);
  lock.release();  // its caller unlocks it
  return holds;
}

}  // namespace rubato
