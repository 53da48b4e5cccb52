// How often something may happen that others can bring about.
#ifndef RUBATO_COMMON_BASE_RATE_LIMIT_H_
#define RUBATO_COMMON_BASE_RATE_LIMIT_H_

#include <algorithm>

#include "absl/time/time.h"

namespace rubato {

// A token bucket. For one thread.
class RateLimit {
 public:
  // So many at once, and one more for each `between` that has passed.
  RateLimit(int at_once, absl::Duration between) : at_once_(at_once), between_(between) {}

  // Zero: it may happen `now`, and has been counted. Otherwise how long until it may.
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
