// Part of the coordinator's core: the snapshot that is being taken. At most one is under way, from
// its announcement to the shards until it is written.
#ifndef RUBATO_SERVER_COORDINATOR_SNAPSHOTS_H_
#define RUBATO_SERVER_COORDINATOR_SNAPSHOTS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/cluster.pb.h"
#include "server/coordinator/roll_call.h"

namespace rubato {

class Snapshots {
 public:
  // kAnnounced: of a future step; kTaking: of the current state, as soon as possible. kWriting: all
  // shards hold it.
  enum class Phase { kNone, kAnnounced, kTaking, kWriting };

  // Where shards write their parts; empty: they do not.
  void SetPartsFolder(const std::string& folder) { parts_folder_ = folder; }
  bool has_parts_folder() const { return !parts_folder_.empty(); }

  // The message that announces another one to `shards`. Forgets the one before.
  proto::CoordinatorMessage Announce(int64_t step, Phase phase, const std::vector<ShardId>& shards);
  // Whether that was the last answer: then all shards hold it.
  bool OnCopied(const ShardId& shard, const proto::SnapshotCopied& copied, absl::Time now);
  // A shard's report on its part. Returns whether it counts.
  bool OnPart(const ShardId& shard, const proto::PartWritten& part, absl::Time now);
  // Whether nothing has been heard of parts for so long that they count as unseen.
  bool GivesUpOnParts(absl::Time now);
  // Whether all shards hold it, and nobody writes at it any more.
  bool has_parts() const { return phase_ == Phase::kWriting && part_call_.complete(); }
  // After that: the shards that do not see the folder or have been silent for too long, and the
  // reason if the snapshot fails.
  const std::vector<int>& unseen() const { return unseen_; }
  const std::vector<int>& silent() const { return silent_; }
  const absl::Status& failure() const { return failure_; }
  // Whether it cannot be taken any more.
  bool OnMissed(const proto::SnapshotMissed& missed);
  // It is written, or not wanted any more.
  void Clear() { phase_ = Phase::kNone; }
  // Its step will not be.
  void Forget() {
    if (phase_ != Phase::kWriting) phase_ = Phase::kNone;
  }

  Phase phase() const { return phase_; }
  bool under_way() const { return phase_ != Phase::kNone; }
  bool copying() const { return phase_ == Phase::kAnnounced || phase_ == Phase::kTaking; }
  uint32_t id() const { return id_; }
  int64_t step() const { return step_; }
  // What its blocks hold, by block.
  const std::map<int64_t, proto::BlockState>& blocks() const { return blocks_; }

 private:
  Phase phase_ = Phase::kNone;
  uint32_t id_ = 0;  // the last one given
  int64_t step_ = 0;
  RollCall call_, part_call_;
  std::map<int64_t, proto::BlockState> blocks_;
  std::map<int, std::vector<int64_t>> blocks_of_;  // by shard
  std::string parts_folder_;
  absl::Time last_part_;  // when something was heard of one
  std::vector<int> unseen_, silent_;
  absl::Status failure_;
};

}  // namespace rubato

#endif  // RUBATO_SERVER_COORDINATOR_SNAPSHOTS_H_
