// A monotonic clock, for deadlines and durations. The wall clock may be stepped, by hand or by NTP,
// and then a wait of an hour may take a year, or no time at all.
#ifndef RUBATO_COMMON_BASE_MONOTONIC_H_
#define RUBATO_COMMON_BASE_MONOTONIC_H_

#include <condition_variable>
#include <cstdint>
#include <list>
#include <mutex>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace rubato {

// Nanoseconds since a fixed moment, which is the same for all processes of the host.
int64_t MonotonicNanos();
// The same as an absl::Time without a date: compare it only with other results of this function.
absl::Time MonotonicNow();

// Like absl::Mutex, but waits use MonotonicNow: those of the packaged Abseil use the wall clock.
// The thread that unlocks evaluates the conditions, so a waiter wakes only when its own condition
// holds.
class ABSL_LOCKABLE MonotonicMutex {
 public:
  MonotonicMutex() = default;
  MonotonicMutex(const MonotonicMutex&) = delete;

  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mutex_.lock(); }
  void Unlock() ABSL_UNLOCK_FUNCTION();
  void AssertHeld() const ABSL_ASSERT_EXCLUSIVE_LOCK() {}  // for the analysis of threads alone

  // Returns when the condition holds.
  void Await(const absl::Condition& condition) ABSL_EXCLUSIVE_LOCKS_REQUIRED(this) {
    AwaitUntil(condition, absl::InfiniteFuture());
  }
  // Waits until the condition holds or `deadline` (of MonotonicNow) has passed; returns whether the
  // condition holds.
  bool AwaitUntil(const absl::Condition& condition, absl::Time deadline)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(this);
  bool AwaitFor(const absl::Condition& condition, absl::Duration longest)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(this) {
    return AwaitUntil(condition, MonotonicNow() + longest);
  }

 private:
  struct Waiter {
    const absl::Condition& condition;
    std::condition_variable wake;
  };
  // Wakes the waiters whose conditions hold.
  void WakeWaiters();

  std::mutex mutex_;
  std::list<Waiter*> waiters_;  // guarded by mutex_
};

class ABSL_SCOPED_LOCKABLE MonotonicLock {
 public:
  explicit MonotonicLock(MonotonicMutex* mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex)
      : mutex_(*mutex) {
    mutex_.Lock();
  }
  // Waits for the condition too.
  MonotonicLock(MonotonicMutex* mutex, const absl::Condition& condition)
      ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex)
      : mutex_(*mutex) {
    mutex_.Lock();
    mutex_.Await(condition);
  }
  ~MonotonicLock() ABSL_UNLOCK_FUNCTION() { mutex_.Unlock(); }
  MonotonicLock(const MonotonicLock&) = delete;

 private:
  MonotonicMutex& mutex_;
};

}  // namespace rubato

#endif  // RUBATO_COMMON_BASE_MONOTONIC_H_
