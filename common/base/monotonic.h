// Time that nobody sets, for deadlines and lengths of time: the wall clock may be stepped, by hand
// or by NTP, and what waits for an hour of it may wait for a year, or not at all.
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

// Nanoseconds since some moment of the host's, the same for all of its processes.
int64_t MonotonicNanos();
// The same as a time, which has no date: it is compared with others of this function alone.
absl::Time MonotonicNow();

// As absl::Mutex, with waits that end by MonotonicNow: those of the packaged Abseil end by the wall
// clock. Conditions are evaluated by who unlocks, so that a waiter wakes only when its own holds.
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
  // Returns when the condition holds or `deadline` (of MonotonicNow) has come; whether it holds.
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
  // Wakes whose conditions hold.
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
