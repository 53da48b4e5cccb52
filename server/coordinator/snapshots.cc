#include "server/coordinator/snapshots.h"

#include "absl/strings/str_cat.h"

namespace rubato {
namespace {

// How long no shard may say anything of its part.
constexpr absl::Duration kPartSilence = absl::Minutes(2);

}  // namespace

proto::CoordinatorMessage Snapshots::Announce(int64_t step, Phase phase,
                                              const std::vector<ShardId>& shards) {
  phase_ = phase;
  step_ = step;
  call_.Ask(shards);
  part_call_.Ask(shards);
  blocks_.clear();
  blocks_of_.clear();
  unseen_.clear();
  silent_.clear();
  failure_ = absl::OkStatus();
  proto::CoordinatorMessage message;
  message.mutable_snapshot()->set_id(++id_);
  message.mutable_snapshot()->set_step(step);
  if (!parts_folder_.empty()) message.mutable_snapshot()->set_parts_folder(parts_folder_);
  return message;
}

bool Snapshots::OnCopied(const ShardId& shard, const proto::SnapshotCopied& copied,
                         absl::Time now) {
  if (copied.id() != id_ || !copying() || !call_.OnAnswer(shard)) return false;
  std::vector<int64_t>& blocks = blocks_of_[shard.number];
  for (const proto::BlockState& block : copied.blocks()) {
    blocks_[block.block()] = block;
    blocks.push_back(block.block());
  }
  if (parts_folder_.empty() && part_call_.OnAnswer(shard)) unseen_.push_back(shard.number);
  if (!call_.complete()) return false;
  phase_ = Phase::kWriting;
  last_part_ = now;
  return true;
}

bool Snapshots::OnPart(const ShardId& shard, const proto::PartWritten& part, absl::Time now) {
  // It says first that it has copied the blocks.
  if (part.id() != id_ || !under_way() || blocks_of_.count(shard.number) == 0) return false;
  if (part.state() == proto::PartWritten::STATE_WRITING) {
    last_part_ = now;
    return true;
  }
  if (!part_call_.OnAnswer(shard)) return false;
  last_part_ = now;
  const std::vector<int64_t>& blocks = blocks_of_[shard.number];
  if (part.state() == proto::PartWritten::STATE_WRITTEN) {
    const size_t vectors = blocks.empty() ? 0 : part.checksums_size() / blocks.size();
    for (size_t i = 0; i < blocks.size(); ++i) {
      proto::BlockState& state = blocks_[blocks[i]];
      state.clear_checksums();
      for (size_t vector = 0; vector < vectors; ++vector) {
        state.add_checksums(part.checksums(static_cast<int>(i * vectors + vector)));
      }
    }
  } else if (part.state() == proto::PartWritten::STATE_FAILED) {
    failure_.Update(absl::UnavailableError(
        absl::StrCat("shard ", shard.number, " cannot write its part: ", part.reason())));
  } else {
    unseen_.push_back(shard.number);
  }
  return true;
}

bool Snapshots::GivesUpOnParts(absl::Time now) {
  if (phase_ != Phase::kWriting || part_call_.complete() || now - last_part_ < kPartSilence) {
    return false;
  }
  for (const ShardId& shard :
       std::vector<ShardId>(part_call_.missing().begin(), part_call_.missing().end())) {
    silent_.push_back(shard.number);
    part_call_.OnAnswer(shard);
  }
  return true;
}

bool Snapshots::OnMissed(const proto::SnapshotMissed& missed) {
  if (missed.id() != id_ || !copying()) return false;
  phase_ = Phase::kNone;
  return true;
}

}  // namespace rubato
