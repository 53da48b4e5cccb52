#include "server/coordinator/leases.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/base/lease.h"

namespace rubato {
namespace {

// The shell ticks ten times a second or more often. After a longer pause, what has come meanwhile
// may still lie in the sockets.
constexpr absl::Duration kLate = absl::Milliseconds(500);

}  // namespace

Leases::Leases(const proto::Job& job, absl::Time now)
    : lease_(absl::Seconds(job.cluster().lease())),
      borne_(BorneSilence(lease_)),
      stall_timeout_(absl::Seconds(job.cluster().stall_timeout())),
      last_tick_(now) {}

void Leases::OnTick(absl::Time now, Registry* registry) {
  const absl::Time before = std::exchange(last_tick_, now);
  const absl::Duration missed = now - before;
  if (missed <= kLate) return;
  if (missed > borne_) {
    pause_ = missed;
    paused_until_ = now;
  }
  for (auto& [id, peer] : registry->peers()) {
    const auto spare = [&](absl::Time since, absl::Duration limit, absl::Time* until) {
      const absl::Duration more = std::min(missed, limit);
      const absl::Time end = since + limit;
      if (before <= end && end < now + more) *until = now + more;
    };
    spare(peer.last_heard, borne_, &peer.silence_spared_until);
    spare(peer.last_progress, stall_timeout_, &peer.stall_spared_until);
  }
}

absl::Duration Leases::StoodStill(absl::Time now) const {
  if (now - last_tick_ > borne_) return now - last_tick_;
  return now - paused_until_ <= lease_ ? pause_ : absl::ZeroDuration();
}

bool Leases::IsSilent(const Peer& peer, absl::Time now) const {
  return now - peer.last_heard > borne_ && now >= peer.silence_spared_until;
}

bool Leases::HearsNobody(const Registry& registry, absl::Time now) const {
  const absl::Time since = now - 2 * HeartbeatInterval(lease_);
  return std::none_of(registry.peers().begin(), registry.peers().end(), [since](const auto& entry) {
    return entry.first != kOwnShard && entry.second.last_heard >= since;
  });
}

std::string Leases::NotHeard() const {
  return absl::StrFormat("was not heard of for %s (cluster.lease: %s)",
                         absl::FormatDuration(borne_), absl::FormatDuration(lease_));
}

std::vector<Leases::Expired> Leases::CheckSilent(const Registry& registry, int64_t step,
                                                 absl::Time now) const {
  std::vector<Expired> silent;
  if (HearsNobody(registry, now)) return silent;
  for (const auto& [id, peer] : registry.peers()) {
    const bool beats = peer.is_worker ? peer.is_member : id != kOwnShard;
    if (!beats || !IsSilent(peer, now)) continue;
    silent.push_back({id, absl::StrFormat("%s at step %d", NotHeard(), step)});
  }
  return silent;
}

std::vector<Leases::Expired> Leases::CheckStalled(const Registry& registry, int64_t step) const {
  std::vector<Expired> stalled;
  for (const auto& [id, peer] : registry.peers()) {
    if (!peer.is_worker || !peer.is_member || peer.idle) continue;
    if (peer.busy_seconds <= absl::ToDoubleSeconds(stall_timeout_)) continue;
    stalled.push_back(
        {id, absl::StrFormat(
                 "is alive but has been at one thing for %s (cluster.stall_timeout) at step %d",
                 absl::FormatDuration(stall_timeout_), step)});
  }
  return stalled;
}

std::optional<Leases::Expired> Leases::CheckTester(PeerId id, const Peer& tester,
                                                   absl::string_view test, absl::Time now) const {
  if (IsSilent(tester, now)) {
    return Expired{id, absl::StrFormat("%s during %s", NotHeard(), test)};
  }
  if (now - tester.last_progress > stall_timeout_ && now >= tester.stall_spared_until) {
    return Expired{id, absl::StrFormat("is alive but has not done %s in %s (cluster.stall_timeout)",
                                       test, absl::FormatDuration(stall_timeout_))};
  }
  return std::nullopt;
}

}  // namespace rubato
