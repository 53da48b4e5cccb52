// Limits the rate of events that others can cause.
#ifndef RUBATO_COMMON_BASE_RATE_LIMIT_H_
#define RUBATO_COMMON_BASE_RATE_LIMIT_H_

#include <algorithm>

#include "absl/time/time.h"

namespace rubato {

// A token bucket. For one thread.
class RateLimit {
 public:
  // Allows a burst of `at_once` events, and one more for each `between` that has passed.
  RateLimit(int at_once, absl::Duration between) : at_once_(at_once), between_(between) {}

  // Zero: the event may happen `now`, and is counted. Otherwise how long until it may happen.
  absl::Duration Wait(absl::Time now) {
    // All are free again at free_at_, one between_ before it, and so on.
    const absl::Time free_at = std::max(free_at_, now);
    const absl::Duration wait = free_at - now - (at_once_ - 1) * between_;
    if (wait > absl::ZeroDuration()) return wait;
    free_at_ = free_at + between_;
    return absl::ZeroDuration();
  }

 private:
  const int at_once_;
  const absl::Duration between_;
  absl::Time free_at_ = absl::InfinitePast();
};

}  // namespace rubato

#endif  // RUBATO_COMMON_BASE_RATE_LIMIT_H_
