// Part of the coordinator's core: which peers count as dead, because they are silent or because
// they hold up the others.
#ifndef RUBATO_SERVER_COORDINATOR_LEASES_H_
#define RUBATO_SERVER_COORDINATOR_LEASES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "proto/job.pb.h"
#include "server/coordinator/registry.h"

namespace rubato {

class Leases {
 public:
  Leases(const proto::Job& job, absl::Time now);

  // Call it at each tick, before any check. If this process was paused since the last tick, a peer
  // whose lease expired meanwhile may have sent its heartbeat in time, so messages that have
  // arrived must be handled first. So a peer whose time ends in the pause, or within the same
  // length of time after it, gets an extension once: the length of the pause, but at most its
  // normal time.
  void OnTick(absl::Time now, Registry* registry);

  // The length of the last pause of this process, if it was longer than its connections tolerate
  // and ended less than a lease ago, so that reports of broken connections may still arrive. Else
  // zero.
  absl::Duration StoodStill(absl::Time now) const;

  struct Expired {
    PeerId peer;
    std::string why;  // completes "worker 1 (host pid 2) ..."
  };
  // Members, and shards of other processes, that have been silent for longer than is tolerated,
  // which is less than a lease. None while no peer at all is heard: the cause may be in this
  // process, which detects that itself (server/process/engine_watch.h), and the connections of dead
  // peers break soon after. `step` is the current step.
  std::vector<Expired> CheckSilent(const Registry& registry, int64_t step, absl::Time now) const;
  // Members that report that they have been busy with one task for longer than the stall timeout. A
  // worker that only waits does not report so.
  std::vector<Expired> CheckStalled(const Registry& registry, int64_t step) const;
  // The same of one that makes a test, since its last progress.
  std::optional<Expired> CheckTester(PeerId id, const Peer& tester, absl::string_view test,
                                     absl::Time now) const;

 private:
  bool IsSilent(const Peer& peer, absl::Time now) const;
  std::string NotHeard() const;
  bool HearsNobody(const Registry& registry, absl::Time now) const;

  const absl::Duration lease_;
  const absl::Duration borne_;  // of silence
  const absl::Duration stall_timeout_;
  absl::Time last_tick_;
  // The last pause that was longer than connections bear, and its end.
  absl::Duration pause_;
  absl::Time paused_until_ = absl::InfinitePast();
};

}  // namespace rubato

#endif  // RUBATO_SERVER_COORDINATOR_LEASES_H_
