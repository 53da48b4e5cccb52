// How long a thread has been busy with one task, readable by other threads. A thread that only
// waits calls Wait; one that hangs cannot.
#ifndef RUBATO_COMMON_BASE_BUSY_CLOCK_H_
#define RUBATO_COMMON_BASE_BUSY_CLOCK_H_

#include <atomic>
#include <cstdint>

#include "absl/time/time.h"
#include "common/base/monotonic.h"

namespace rubato {

// Any thread.
class BusyClock {
 public:
  // A task begins, or goes on after Wait.
  void Begin() { since_ = MonotonicNanos(); }
  // From now on it waits for others.
  void Wait() { since_ = 0; }

  // Zero while it waits.
  absl::Duration busy() const {
    const int64_t since = since_;
    return since == 0 ? absl::ZeroDuration() : absl::Nanoseconds(MonotonicNanos() - since);
  }

 private:
  std::atomic<int64_t> since_{0};  // 0: it waits
};

}  // namespace rubato

#endif  // RUBATO_COMMON_BASE_BUSY_CLOCK_H_
