// Part of the coordinator's core: how often the view changes for workers that join. Each change
// stops all workers for a moment, and nothing else keeps a worker gone bad from registering and
// leaving again and again.
#ifndef RUBATO_SERVER_COORDINATOR_JOIN_PACE_H_
#define RUBATO_SERVER_COORDINATOR_JOIN_PACE_H_

#include <algorithm>

#include "absl/time/time.h"

namespace rubato {

class JoinPace {
 public:
  // So many changes at once, and four a second. Whoever has to wait joins with the next.
  static constexpr int kAtOnce = 16;
  static constexpr absl::Duration kBetween = absl::Milliseconds(250);

  // Whether the view may change for one `now`; if so, that has been counted.
  bool May(absl::Time now) {
    // All are free again at free_at_, one kBetween before it, and so on.
    const absl::Time free_at = std::max(free_at_, now);
    if (free_at - now > (kAtOnce - 1) * kBetween) return false;
    free_at_ = free_at + kBetween;
    return true;
  }

 private:
  absl::Time free_at_ = absl::InfinitePast();
};

}  // namespace rubato

#endif  // RUBATO_SERVER_COORDINATOR_JOIN_PACE_H_
