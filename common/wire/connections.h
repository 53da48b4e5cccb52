// The connections of a server, with the kernel's count of their bytes: nothing else shows how much
// gRPC holds for a peer before a message is complete.
//
// Until its caller is authenticated (by a key, or whatever the job asks for), a connection is a
// *stranger's*. Anybody can open connections and make calls, and gRPC creates calls faster than it
// ends them. So there is a limit on the number of strangers, on their time and on their bytes: a
// process of the job sends only a few KB before the server has confirmed that it knows it.
// Afterwards a connection may send any number of bytes, but not in one message: gRPC 1.51 receives
// a message of any length completely before it refuses it.
#ifndef RUBATO_COMMON_WIRE_CONNECTIONS_H_
#define RUBATO_COMMON_WIRE_CONNECTIONS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace rubato {

class Connections {
 public:
  struct Limits {
    size_t strangers = 0;         // at a time: as many as may well come at once
    uint64_t stranger_bytes = 0;  // that each may send
    uint64_t unread_bytes = 0;    // that others may send between the ends of two messages
  };
  static constexpr absl::Duration kPatience = absl::Seconds(10);  // with strangers
  // The interval between two checks, in which a connection may send 10 MB. It grows by as much for
  // each known connection, so that checking takes less than 1 % of a processor's time.
  static constexpr absl::Duration kBetweenLooks = absl::Milliseconds(10);
  static constexpr absl::Duration kForEachKnown = absl::Microseconds(200);
  // Memory of connections that have sent more bytes than this is returned to the system; that of a
  // few hellos is not worth it.
  static constexpr uint64_t kMuch = 8 << 10;
  // How long after the end of a connection that happens: gRPC frees its memory on its own threads.
  static constexpr absl::Duration kUntilFreed = absl::Seconds(1);

  explicit Connections(const Limits& limits) : limits_(limits) {}
  ~Connections();
  Connections(const Connections&) = delete;

  // One has come, `now` on a clock that never steps back. Breaks the oldest stranger if there are
  // too many.
  void Add(int fd, absl::Time now) ABSL_LOCKS_EXCLUDED(mutex_);

  // Set by the reader of a complete message from a known peer.
  using HasRead = std::shared_ptr<std::atomic<bool>>;
  // Marks `peer` (gRPC's name of the peer) as known. Never returns null.
  HasRead OnKnown(const std::string& peer) ABSL_LOCKS_EXCLUDED(mutex_);

  // Forgets connections that have ended, and breaks those that have reached a limit. Gives back the
  // memory of those, and of strangers who have sent much.
  void Look(absl::Time now) ABSL_LOCKS_EXCLUDED(mutex_);

  // The time until the next check is due; infinite if there is nothing to check.
  absl::Duration UntilNextLook() const ABSL_LOCKS_EXCLUDED(mutex_);

  // Of connections that are all silent, known ones, the descriptors: no check is due until one of
  // these has something to read or has ended. Else empty. For the caller of Add and Look, until it
  // calls them again.
  std::vector<int> Silent() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Connection {
    std::string peer;
    int fd;  // of its own, so that it stays this connection's
    absl::Time since;
    HasRead has_read;           // null: a stranger's
    uint64_t bytes_before = 0;  // had come when a look found that a message had been read
    uint64_t bytes_seen = 0;    // by the last look
  };
  // Whether checks are due however silent the known ones are.
  bool LooksAnyway() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // For the known ones.
  absl::Duration BetweenLooks() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether it is to be forgotten; breaks it if it has reached a limit.
  bool IsOver(Connection* connection, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Limits limits_;
  mutable absl::Mutex mutex_;
  std::list<Connection> strangers_ ABSL_GUARDED_BY(mutex_);  // the oldest first
  std::list<Connection> known_ ABSL_GUARDED_BY(mutex_);
  absl::Time looks_at_known_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  // The last look was at the known ones, and found nothing that had come or waited to be read.
  bool are_silent_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Time gives_back_at_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
};

}  // namespace rubato

#endif  // RUBATO_COMMON_WIRE_CONNECTIONS_H_
