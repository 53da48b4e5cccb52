#include "server/coordinator/snapshots.h"

namespace rubato {

proto::CoordinatorMessage Snapshots::Announce(int64_t step, Phase phase) {
  phase_ = phase;
  step_ = step;
  answers_ = 0;
  blocks_.clear();
  proto::CoordinatorMessage message;
  message.mutable_snapshot()->set_id(++id_);
  message.mutable_snapshot()->set_step(step);
  return message;
}

bool Snapshots::OnCopied(const proto::SnapshotCopied& copied) {
  if (copied.id() != id_ || (phase_ != Phase::kAnnounced && phase_ != Phase::kTaking)) return false;
  for (const proto::BlockState& block : copied.blocks()) blocks_[block.block()] = block;
  if (++answers_ < shards_) return false;
  phase_ = Phase::kWriting;
  return true;
}

bool Snapshots::OnMissed(const proto::SnapshotMissed& missed) {
  if (missed.id() != id_ || !under_way() || phase_ == Phase::kWriting) return false;
  phase_ = Phase::kNone;
  return true;
}

}  // namespace rubato
