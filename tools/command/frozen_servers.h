// Which servers stand still, so that they are killed and can be started again: judged by what the
// coordinator answers, and for how long. Does no I/O.
#ifndef RUBATO_TOOLS_COMMAND_FROZEN_SERVERS_H_
#define RUBATO_TOOLS_COMMAND_FROZEN_SERVERS_H_

#include <map>
#include <vector>

#include "absl/time/time.h"
#include "common/base/lease.h"
#include "proto/cluster.pb.h"

namespace rubato {

class FrozenServers {
 public:
  // How long a server that lives may take to register again.
  static constexpr absl::Duration kComesBack = absl::Seconds(10);

  explicit FrozenServers(absl::Duration lease) : borne_(BorneSilence(lease)) {}

  void OnShardStarted(int shard, absl::Time now);
  void OnCoordinatorStarted() { silent_since_ = absl::InfiniteFuture(); }
  // The coordinator has answered. The shards to kill among those that it waits for: a killed one
  // counts as started, for a busy machine takes its time to end the process before.
  std::vector<int> OnStatus(const proto::JobStatus& status, absl::Time now);
  // The coordinator has not answered; `is_mute` if it takes connections all the same. Whether to
  // kill it.
  bool OnSilence(bool is_mute, absl::Time now);
  // Training goes on: nothing is missing.
  void OnProgress();

 private:
  const absl::Duration borne_;                         // silence
  std::map<int, absl::Time> missing_since_, started_;  // by shard
  absl::Time silent_since_ = absl::InfiniteFuture();   // the coordinator
};

}  // namespace rubato

#endif  // RUBATO_TOOLS_COMMAND_FROZEN_SERVERS_H_
