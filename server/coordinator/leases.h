// Part of the coordinator's core: which peers are to be taken for dead, because nothing is heard of
// them or because they hold up the others.
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

  // Each tick, before anything is judged. If this process has stood still since the last one,
  // somebody whose time ended meanwhile may have been heard in time: what has arrived counts before
  // anybody is judged. So whose time ends in that pause, or within as long after it, is spared for
  // as long as the pause was, at most for as long as its time is, and not again.
  void OnTick(absl::Time now, Registry* registry);

  // For how long this process has stood still, if that was longer than its connections bear, and if
  // what broke of them meanwhile may still be heard of: within a lease of its end. Else zero.
  absl::Duration StoodStill(absl::Time now) const;

  struct Expired {
    PeerId peer;
    std::string why;  // completes "worker 1 (host pid 2) ..."
  };
  // Members, and shards of other processes, that are silent for longer than is borne, within the
  // lease. None while nobody is heard: what holds up all heartbeats may be in this process, and
  // says so itself (server/process/engine_watch.h); the connections of those who are dead break
  // soon after. `step` is the one at hand.
  std::vector<Expired> CheckSilent(const Registry& registry, int64_t step, absl::Time now) const;
  // Members that say that they have been at one thing for longer than the stall timeout: who only
  // waits says so.
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
