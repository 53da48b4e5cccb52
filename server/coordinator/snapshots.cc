#include "server/coordinator/snapshots.h"

namespace rubato {

proto::CoordinatorMessage Snapshots::Announce(int64_t step, Phase phase,
                                              const std::vector<ShardId>& shards) {
  phase_ = phase;
  step_ = step;
  call_.Ask(shards);
  blocks_.clear();
  proto::CoordinatorMessage message;
  message.mutable_snapshot()->set_id(++id_);
  message.mutable_snapshot()->set_step(step);
  return message;
}

bool Snapshots::OnCopied(const ShardId& shard, const proto::SnapshotCopied& copied) {
  if (copied.id() != id_ || !copying() || !call_.OnAnswer(shard)) return false;
  for (const proto::BlockState& block : copied.blocks()) blocks_[block.block()] = block;
  if (!call_.complete()) return false;
  phase_ = Phase::kWriting;
  return true;
}

bool Snapshots::OnMissed(const proto::SnapshotMissed& missed) {
  if (missed.id() != id_ || !copying()) return false;
  phase_ = Phase::kNone;
  return true;
}

}  // namespace rubato
