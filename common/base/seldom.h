// Limits how many of many similar events are logged.
#ifndef RUBATO_COMMON_BASE_SELDOM_H_
#define RUBATO_COMMON_BASE_SELDOM_H_

#include "absl/time/time.h"

namespace rubato {

// Allows one event a second. For one thread.
class Seldom {
 public:
  static constexpr absl::Duration kBetween = absl::Seconds(1);

  // Whether an event that happens `now` may be logged.
  bool May(absl::Time now) {
    if (now < next_) return false;
    next_ = now + kBetween;
    return true;
  }

 private:
  absl::Time next_ = absl::InfinitePast();
};

}  // namespace rubato

#endif  // RUBATO_COMMON_BASE_SELDOM_H_
