// Part of the coordinator's core: the snapshot that is being taken. At most one is under way, from
// its announcement to the shards until it is written.
#ifndef RUBATO_SERVER_COORDINATOR_SNAPSHOTS_H_
#define RUBATO_SERVER_COORDINATOR_SNAPSHOTS_H_

#include <cstdint>
#include <map>
#include <vector>

#include "proto/cluster.pb.h"
#include "server/coordinator/roll_call.h"

namespace rubato {

class Snapshots {
 public:
  // kAnnounced: of a step to come; kTaking: of the next moment.
  enum class Phase { kNone, kAnnounced, kTaking, kWriting };

  // The message that announces another one to `shards`. Forgets the one before.
  proto::CoordinatorMessage Announce(int64_t step, Phase phase, const std::vector<ShardId>& shards);
  // Whether that was the last answer: then it is to be written.
  bool OnCopied(const ShardId& shard, const proto::SnapshotCopied& copied);
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
  RollCall call_;
  std::map<int64_t, proto::BlockState> blocks_;
};

}  // namespace rubato

#endif  // RUBATO_SERVER_COORDINATOR_SNAPSHOTS_H_
