// What follows from cluster.lease, within which everybody notices that a peer has vanished. To find
// it takes time, so less silence is borne than a lease.
#ifndef RUBATO_COMMON_BASE_LEASE_H_
#define RUBATO_COMMON_BASE_LEASE_H_

#include <algorithm>

#include "absl/time/time.h"

namespace rubato {

// How often a process with a lease says that it is alive.
inline absl::Duration HeartbeatInterval(absl::Duration lease) { return lease / 5; }

// How long it may take to find that more silence has come than is borne.
inline absl::Duration LeaseMargin(absl::Duration lease) {
  return std::min(lease / 8, absl::Milliseconds(500));
}

// Who is silent for longer is taken for dead: it has missed four heartbeats in a row, or has been
// asked and not answered (KeepAlive).
inline absl::Duration BorneSilence(absl::Duration lease) { return lease - LeaseMargin(lease); }

// How often the coordinator looks who is silent: ten times a second, more often for short leases.
inline absl::Duration LeaseTick(absl::Duration lease) { return LeaseMargin(lease) / 5; }

// When a connection breaks that nothing comes through. gRPC's keep-alive asks when nothing has come
// for `ask`, and breaks the connection if nothing comes for `answer` behind that: a peer that falls
// silent is given up after `answer` at the earliest, if it was asked just before, and after both at
// the latest. Who has heartbeats is judged by them first. But gRPC's clients ask once a second at
// most (next_allowed_ping_interval in its chttp2 transport): one that asked just before the server
// fell silent would notice up to a second later. So servers ask first: as long as one lives, no
// client need ask.
struct KeepAlive {
  explicit KeepAlive(absl::Duration lease)
      : ask(LeaseMargin(lease) * 3 / 5),
        server_asks(ask * 2 / 3),
        answer(BorneSilence(lease) + LeaseMargin(lease) * 3 / 10) {}

  absl::Duration ask, server_asks, answer;
};

}  // namespace rubato

#endif  // RUBATO_COMMON_BASE_LEASE_H_
