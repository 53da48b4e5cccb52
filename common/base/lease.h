// Time limits derived from cluster.lease, within which every process notices that a peer has
// vanished. Noticing takes time, so the silence that is tolerated is shorter than a lease.
#ifndef RUBATO_COMMON_BASE_LEASE_H_
#define RUBATO_COMMON_BASE_LEASE_H_

#include <algorithm>

#include "absl/time/time.h"

namespace rubato {

// How often a process with a lease says that it is alive.
inline absl::Duration HeartbeatInterval(absl::Duration lease) { return lease / 5; }

// How long it may take to notice that a peer has been silent for longer than is tolerated.
inline absl::Duration LeaseMargin(absl::Duration lease) {
  return std::min(lease / 8, absl::Milliseconds(500));
}

// A peer that is silent for longer is considered dead: it has missed four heartbeats in a row, or
// has not answered a keep-alive ping (KeepAlive).
inline absl::Duration BorneSilence(absl::Duration lease) { return lease - LeaseMargin(lease); }

// How often the coordinator checks for silent peers: ten times a second, more often for short
// leases.
inline absl::Duration LeaseTick(absl::Duration lease) { return LeaseMargin(lease) / 5; }

// When a silent connection is broken. gRPC's keep-alive sends a ping when nothing has arrived for
// `ask`, and breaks the connection if nothing arrives for `answer` after that. So a silent peer is
// given up after `answer` at the earliest, if the ping was sent just before, and after both at the
// latest. Peers that send heartbeats are judged by these first. But gRPC's clients ping once a
// second at most (next_allowed_ping_interval in its chttp2 transport): a client that sent a ping
// just before the server fell silent would notice up to a second later. So servers ping first: as
// long as a server lives, no client needs to.
struct KeepAlive {
  explicit KeepAlive(absl::Duration lease)
      : ask(LeaseMargin(lease) * 3 / 5),
        server_asks(ask * 2 / 3),
        answer(BorneSilence(lease) + LeaseMargin(lease) * 3 / 10) {}

  absl::Duration ask, server_asks, answer;
};

}  // namespace rubato

#endif  // RUBATO_COMMON_BASE_LEASE_H_
