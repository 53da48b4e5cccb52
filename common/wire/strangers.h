// Connections on which nothing whole has been said yet. Anybody may call, begin messages and finish
// none, which stay in memory: so such connections are few, none lasts, and none sends much. (What
// gRPC limits by itself, the calls of a connection at a time, it does not limit before the peer has
// acknowledged its settings, which a peer may leave.)
#ifndef RUBATO_COMMON_WIRE_STRANGERS_H_
#define RUBATO_COMMON_WIRE_STRANGERS_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace rubato {

class Strangers {
 public:
  static constexpr absl::Duration kPatience = absl::Seconds(10);
  // Of more bytes the memory is given back: that of a few hellos is not worth it.
  static constexpr uint64_t kMuch = 64 << 10;
  // How long after the end of a connection: gRPC frees what is of it on threads of its own.
  static constexpr absl::Duration kUntilFreed = absl::Seconds(1);

  // At most `max` at a time: as many as may well come at once. Each may send `max_bytes`.
  Strangers(size_t max, uint64_t max_bytes) : max_(max), max_bytes_(max_bytes) {}
  ~Strangers();
  Strangers(const Strangers&) = delete;

  // A connection has come, `now` on a clock that never steps back. Breaks the oldest if there are
  // too many.
  void Add(int fd, absl::Time now) ABSL_LOCKS_EXCLUDED(mutex_);

  // Something whole has come from `peer`, as gRPC names it.
  void OnMessage(const std::string& peer) ABSL_LOCKS_EXCLUDED(mutex_);

  // Forgets connections that have ended, and breaks those that have said nothing for kPatience or
  // have sent too much. Gives back the memory of those, and of others who have sent much.
  void Look(absl::Time now) ABSL_LOCKS_EXCLUDED(mutex_);

  // Whether there is nothing to look at.
  bool empty() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Stranger {
    std::string peer;
    int fd;  // of its own, so that it stays this connection's
    absl::Time since;
  };

  mutable absl::Mutex mutex_;
  const size_t max_;
  const uint64_t max_bytes_;
  std::list<Stranger> strangers_ ABSL_GUARDED_BY(mutex_);  // the oldest first
  absl::Time gives_back_at_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
};

}  // namespace rubato

#endif  // RUBATO_COMMON_WIRE_STRANGERS_H_
