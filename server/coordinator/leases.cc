#include "server/coordinator/leases.h"

#include <algorithm>

#include "absl/strings/str_format.h"

namespace rubato {
namespace {

// A tick that comes later than this finds that the process was frozen. The shell ticks ten times a
// second.
constexpr absl::Duration kFrozen = absl::Milliseconds(500);

}  // namespace

Leases::Leases(const proto::Job& job, absl::Time now)
    : lease_(absl::Seconds(job.cluster().lease())),
      stall_timeout_(absl::Seconds(job.cluster().stall_timeout())),
      last_tick_(now) {}

bool Leases::OnTick(absl::Time now, Registry* registry) {
  const absl::Duration since = now - last_tick_;
  last_tick_ = now;
  if (since <= kFrozen) return true;
  for (auto& [id, peer] : registry->peers()) {
    peer.last_heard += since;
    peer.last_progress += since;
  }
  return false;
}

std::vector<Leases::Expired> Leases::Check(const Registry& registry,
                                           absl::FunctionRef<std::vector<WorkerId>()> waited_for,
                                           int64_t step, absl::Time now) const {
  std::vector<Expired> silent, stalled;
  for (const auto& [id, peer] : registry.peers()) {
    if (!peer.is_worker || !peer.is_member) continue;
    if (now - peer.last_heard > lease_) {
      silent.push_back({id, absl::StrFormat("was not heard of for %s (cluster.lease) at step %d",
                                            absl::FormatDuration(lease_), step)});
    } else if (now - peer.last_progress > stall_timeout_) {
      stalled.push_back(
          {id, absl::StrFormat(
                   "is alive but has computed nothing for %s (cluster.stall_timeout) at step %d",
                   absl::FormatDuration(stall_timeout_), step)});
    }
  }
  if (stalled.empty()) return silent;
  // Of those who compute nothing, some may have nothing to compute.
  const std::vector<WorkerId> workers = waited_for();
  for (Expired& expired : stalled) {
    const WorkerId& worker = registry.peers().at(expired.peer).worker;
    if (std::count(workers.begin(), workers.end(), worker) > 0) {
      silent.push_back(std::move(expired));
    }
  }
  return silent;
}

std::optional<Leases::Expired> Leases::CheckTester(PeerId id, const Peer& tester,
                                                   absl::string_view test, absl::Time now) const {
  if (now - tester.last_heard > lease_) {
    return Expired{id, absl::StrFormat("was not heard of for %s (cluster.lease) during %s",
                                       absl::FormatDuration(lease_), test)};
  }
  if (now - tester.last_progress > stall_timeout_) {
    return Expired{id, absl::StrFormat("is alive but has not done %s in %s (cluster.stall_timeout)",
                                       test, absl::FormatDuration(stall_timeout_))};
  }
  return std::nullopt;
}

}  // namespace rubato
