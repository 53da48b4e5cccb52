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
  verdict_steps_ = view.verdict_steps();
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
    Drop(block, payload, actions);
    return absl::OkStatus();
  }
  BlockLedger::Pending pending{contribution, payload};
  if (policy_->on_arrival()) {
    ++ledger.clocks[contribution.worker].accepted;
    if (ledger.units.Contains(contribution.unit)) {
      pending.counted_before = true;
      ++duplicates_;
      Drop(block, payload, actions);
    }
  }
  ledger.pending.push_back(pending);
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

void Shard::Drop(int64_t block, PayloadId payload, ShardActions* actions) {
  ShardAction drop{ShardAction::Kind::kDrop};
  drop.block = block;
  drop.payload = payload;
  actions->push_back(drop);
}

void Shard::OnChanged(int64_t block, ShardActions* actions) {
  BlockLedger& ledger = mutable_ledger(block);
  RUBATO_CHECK(ledger.change != BlockLedger::Change::kNone);
  const BlockLedger::Change change = ledger.change;
  ledger.change = BlockLedger::Change::kNone;
  if (change == BlockLedger::Change::kApply) {
    OnApplied(&ledger);
  } else if (change == BlockLedger::Change::kMeasure) {
    OnMeasured(block, actions);
  }
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
    ledger->units.Insert(applied.unit);
  }
  ++ledger->version;
  ledger->samples += applied.samples;
  if (ledger->measured && !verdict_.apply) ++ledger->skipped;
  ledger->measured = false;
  ledger->pending.erase(ledger->pending.begin());
}

void Shard::OnMeasured(int64_t block, ShardActions* actions) {
  BlockLedger& ledger = mutable_ledger(block);
  ledger.measured = true;
  if (++measured_ < blocks_.size()) return;
  measured_ = 0;
  ShardAction measured{ShardAction::Kind::kMeasured};
  measured.version = ledger.version + 1;
  actions->push_back(measured);
}

void Shard::OnVerdict(int64_t step, bool apply, double factor, ShardActions* actions) {
  if (step <= verdict_.step) return;  // a second copy of it
  verdict_ = {step, apply, factor};
  for (int64_t block = blocks_.begin; block < blocks_.end; ++block) Advance(block, actions);
}

void Shard::OnHold(ShardActions* actions) {
  ShardAction held{ShardAction::Kind::kHeld};
  for (const BlockLedger& ledger : ledgers_) held.version = std::max(held.version, ledger.version);
  held_ = true;
  limit_ = std::min(limit_, held.version + 1);
  actions->push_back(held);
}

void Shard::OnSnapshot(uint32_t id, int64_t step, bool end, ShardActions* actions) {
  held_ = end;
  limit_ = end ? step : kNoLimit;
  if (!policy_->on_arrival()) {
    ShardAction missed{ShardAction::Kind::kMissed};
    missed.snapshot = id;
    for (const BlockLedger& ledger : ledgers_) {
      missed.version = std::max(missed.version, ledger.version);
    }
    if (missed.version > step) {
      actions->push_back(missed);
      return;
    }
  }
  snapshot_ = id;
  snapshot_step_ = step;
  to_copy_ = blocks_.size();
  if (to_copy_ == 0) {
    ShardAction copied{ShardAction::Kind::kCopied};
    copied.snapshot = id;
    actions->push_back(copied);
  }
  for (int64_t block = blocks_.begin; block < blocks_.end; ++block) Advance(block, actions);
}

void Shard::MaybeCopy(int64_t block, ShardActions* actions) {
  BlockLedger& ledger = mutable_ledger(block);
  if (ledger.snapshot == snapshot_ || ledger.change == BlockLedger::Change::kApply) return;
  if (!policy_->on_arrival() && ledger.version != snapshot_step_) return;
  ledger.snapshot = snapshot_;
  ShardAction copy{ShardAction::Kind::kCopy};
  copy.block = block;
  copy.snapshot = snapshot_;
  copy.version = ledger.version;
  actions->push_back(copy);
  if (--to_copy_ > 0) return;
  ShardAction copied{ShardAction::Kind::kCopied};
  copied.snapshot = snapshot_;
  actions->push_back(copied);
}

void Shard::Restore(int64_t block, int64_t version, int64_t samples, int64_t skipped,
                    UnitSet units) {
  BlockLedger& ledger = mutable_ledger(block);
  ledger.version = version;
  ledger.samples = samples;
  ledger.skipped = skipped;
  ledger.units = std::move(units);
}

bool Shard::MayChange(const BlockLedger& ledger) const {
  if (policy_->on_arrival()) return !held_;
  if (ledger.version >= limit_) return false;
  return !ledger.measured || verdict_.step == ledger.version;
}

void Shard::Advance(int64_t block, ShardActions* actions) {
  BlockLedger& ledger = mutable_ledger(block);
  MaybeCopy(block, actions);
  if (policy_->on_arrival() && ledger.change == BlockLedger::Change::kNone) {
    while (!ledger.pending.empty() && ledger.pending.front().counted_before) {
      ++ledger.clocks[ledger.pending.front().contribution.worker].applied;
      ledger.pending.erase(ledger.pending.begin());
    }
  }
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
  if (!policy_->MayApply(ledger)) {
    SumSiblings(block, actions);
  } else if (MayChange(ledger)) {
    Apply(block, actions);
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
  apply.updates_before = ledger.version - ledger.skipped;
  apply.on_arrival = policy_->on_arrival();
  apply.version = ledger.version + 1;
  ledger.change = BlockLedger::Change::kApply;
  if (verdict_steps_ && !ledger.measured) {
    apply.kind = ShardAction::Kind::kMeasure;
    ledger.change = BlockLedger::Change::kMeasure;
  } else if (verdict_steps_) {
    if (!verdict_.apply) apply.kind = ShardAction::Kind::kSkip;
    apply.factor = verdict_.factor;
  }
  actions->push_back(apply);
}

void Shard::SumSiblings(int64_t block, ShardActions* actions) {
  if (policy_->on_arrival()) return;
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
