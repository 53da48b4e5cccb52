#include "tools/command/frozen_servers.h"

#include <algorithm>
#include <utility>

namespace rubato {

void FrozenServers::OnShardStarted(int shard, absl::Time now) {
  started_[shard] = now;
  missing_since_.erase(shard);
}

std::vector<int> FrozenServers::OnStatus(const proto::JobStatus& status, absl::Time now) {
  silent_since_ = absl::InfiniteFuture();
  std::vector<int> frozen;
  const std::map<int, absl::Time> before = std::exchange(missing_since_, {});
  for (const int shard : status.missing_shards()) {
    const auto found = before.find(shard);
    const absl::Time since = found == before.end() ? now : found->second;
    missing_since_[shard] = since;
    absl::Time& started = started_.try_emplace(shard, absl::InfinitePast()).first->second;
    // The one that fell silent has been given a lease already, unless it is a new process by now.
    const bool is_silent =
        status.has_lost_shard() && status.lost_shard() == shard && since - started >= borne_;
    // Another one that lives comes back by itself.
    if (!is_silent && now - std::max(started, since) < kComesBack) continue;
    started = now;
    frozen.push_back(shard);
  }
  return frozen;
}

bool FrozenServers::OnSilence(bool is_mute, absl::Time now) {
  silent_since_ = is_mute ? std::min(silent_since_, now) : absl::InfiniteFuture();
  if (now - silent_since_ < borne_) return false;
  silent_since_ = absl::InfiniteFuture();
  return true;
}

void FrozenServers::OnProgress() {
  silent_since_ = absl::InfiniteFuture();
  missing_since_.clear();
}

}  // namespace rubato
