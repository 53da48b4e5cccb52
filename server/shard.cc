#include "server/shard.h"

#include <algorithm>
#include <memory>

#include "absl/strings/str_format.h"
#include "common/check.h"

namespace rubato {

void Shard::OnView(const proto::View& view, ShardActions* actions) {
  view_ = view.number();
  policy_ = std::make_unique<ConsistencyPolicy>(view.mode(), view.leaves());
  members_.assign(view.members_size(), 0);
  for (const proto::Member& member : view.members()) {
    RUBATO_CHECK(member.rank() < view.members_size());
    members_[member.rank()] = member.incarnation();
  }
  for (int64_t block = blocks_.begin; block < blocks_.end; ++block) {
    BlockLedger& ledger = mutable_ledger(block);
    ledger.clocks.assign(members_.size(), {});
    for (const proto::Member& member : view.members()) {
      BlockLedger::Clock& clock = ledger.clocks[member.rank()];
      clock.accepted = clock.applied = member.start_clock();
    }
    Advance(block, actions);
  }
}

absl::Status Shard::OnPush(int64_t block, const Contribution& contribution, PayloadId payload,
                           ShardActions* actions) {
  if (!blocks_.Contains(block)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("contribution is for block %d; this shard owns blocks %d to %d", block,
                        blocks_.begin, blocks_.end));
  }
  if (!IsMember(contribution.worker)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("contribution is from worker %d; the view has %d workers",
                        contribution.worker, members_.size()));
  }
  BlockLedger& ledger = mutable_ledger(block);
  bool is_new = false;
  if (contribution.view == view_ && contribution.incarnation == members_[contribution.worker]) {
    absl::StatusOr<bool> admitted = policy_->Admit(ledger, contribution);
    if (!admitted.ok()) return admitted.status();
    is_new = *admitted;
  }
  if (!is_new) {
    ++duplicates_;
    ShardAction drop{ShardAction::Kind::kDrop};
    drop.block = block;
    drop.payload = payload;
    actions->push_back(drop);
    return absl::OkStatus();
  }
  if (policy_->on_arrival()) ++ledger.clocks[contribution.worker].accepted;
  ledger.pending.push_back({contribution, payload});
  Advance(block, actions);
  return absl::OkStatus();
}

absl::Status Shard::OnPull(uint64_t puller, uint32_t worker, Range blocks, int64_t clock,
                           ShardActions* actions) {
  if (blocks.begin < blocks_.begin || blocks.end > blocks_.end || blocks.empty()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("pull is for blocks %d to %d; this shard owns blocks %d to %d",
                        blocks.begin, blocks.end, blocks_.begin, blocks_.end));
  }
  if (worker != kObserver && !IsMember(worker)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "pull is from worker %d; the view has %d workers", worker, members_.size()));
  }
  for (int64_t block = blocks.begin; block < blocks.end; ++block) {
    const Pull pull{puller, worker, clock};
    if (policy_ != nullptr && policy_->MayRead(ledger(block), worker, clock)) {
      Send(block, pull, actions);
    } else {
      waiting_[block - blocks_.begin].push_back(pull);
    }
  }
  return absl::OkStatus();
}

void Shard::OnPullerGone(uint64_t puller) {
  for (std::vector<Pull>& pulls : waiting_) {
    pulls.erase(std::remove_if(pulls.begin(), pulls.end(),
                               [puller](const Pull& pull) { return pull.puller == puller; }),
                pulls.end());
  }
}

void Shard::OnChanged(int64_t block, ShardActions* actions) {
  BlockLedger& ledger = mutable_ledger(block);
  RUBATO_CHECK(ledger.change != BlockLedger::Change::kNone);
  if (ledger.change == BlockLedger::Change::kApply) OnApplied(&ledger);
  ledger.change = BlockLedger::Change::kNone;
  Advance(block, actions);
}

void Shard::OnApplied(BlockLedger* ledger) {
  const Contribution& applied = ledger->pending.front().contribution;
  if (policy_->on_arrival()) {
    BlockLedger::Clock& clock = ledger->clocks[applied.worker];
    ++clock.applied;
    clock.staleness = ledger->version - applied.read_version;
    ledger->staleness_sum += clock.staleness;
    ledger->staleness_max = std::max(ledger->staleness_max, clock.staleness);
  }
  ++ledger->version;
  ledger->samples += applied.samples;
  ledger->pending.erase(ledger->pending.begin());
}

void Shard::Advance(int64_t block, ShardActions* actions) {
  BlockLedger& ledger = mutable_ledger(block);
  // Answer before the next change: who waits for this version shall not get a later one.
  std::vector<Pull>& pulls = waiting_[block - blocks_.begin];
  for (auto it = pulls.begin(); it != pulls.end();) {
    if (policy_->MayRead(ledger, it->worker, it->clock)) {
      Send(block, *it, actions);
      it = pulls.erase(it);
    } else {
      ++it;
    }
  }
  if (ledger.change != BlockLedger::Change::kNone) return;
  if (policy_->MayApply(ledger)) {
    Apply(block, actions);
  } else {
    SumSiblings(block, actions);
  }
}

void Shard::Apply(int64_t block, ShardActions* actions) {
  BlockLedger& ledger = mutable_ledger(block);
  const BlockLedger::Pending& first = ledger.pending.front();
  ShardAction apply{ShardAction::Kind::kApply};
  apply.block = block;
  apply.payload = first.payload;
  apply.samples = first.contribution.samples;
  apply.samples_before = ledger.samples;
  apply.on_arrival = policy_->on_arrival();
  apply.version = ledger.version + 1;
  ledger.change = BlockLedger::Change::kApply;
  actions->push_back(apply);
}

void Shard::SumSiblings(int64_t block, ShardActions* actions) {
  BlockLedger& ledger = mutable_ledger(block);
  std::vector<BlockLedger::Pending>& pending = ledger.pending;
  for (size_t i = 0; i < pending.size(); ++i) {
    const Range sibling = policy_->tree().Sibling(pending[i].contribution.node);
    for (size_t j = i + 1; j < pending.size(); ++j) {
      if (!(pending[j].contribution.node == sibling)) continue;
      ShardAction sum{ShardAction::Kind::kSum};
      sum.block = block;
      sum.payload = pending[i].payload;
      sum.other = pending[j].payload;
      Contribution& folded = pending[i].contribution;
      folded.node = policy_->tree().Parent(folded.node);
      folded.samples += pending[j].contribution.samples;
      pending.erase(pending.begin() + j);
      ledger.change = BlockLedger::Change::kSum;
      actions->push_back(sum);
      return;
    }
  }
}

void Shard::Send(int64_t block, const Pull& pull, ShardActions* actions) const {
  ShardAction send{ShardAction::Kind::kSend};
  send.block = block;
  send.puller = pull.puller;
  send.clock = pull.clock;
  send.version = ledger(block).version;
  if (pull.worker != kObserver) send.staleness = ledger(block).clocks[pull.worker].staleness;
  actions->push_back(send);
}

}  // namespace rubato
