#include "server/shard/shard.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "common/base/status.h"

namespace rubato {
namespace {

constexpr uint32_t kMaxRanks = 1 << 16;  // cluster.workers.max is at most this

}  // namespace

void Shard::OnView(const proto::View& view, ShardActions* actions) {
  if (view.number() <= view_) return;
  const bool new_lineage = policy_ == nullptr || view.lineage() != lineage_;
  view_ = view.number();
  lineage_ = view.lineage();
  policy_ = policies_(view);
  terms_.closed = answers_close_ = false;
  terms_.limit = terms_.readable = view.until_step();
  terms_.asked.clear();
  origin_ = view.origin_unit();
  grants_ = Grants(view);
  until_ = view.has_until_step() ? view.until_step() : ShardTerms::kNoLimit;
  if (new_lineage) {
    terms_.decisions.clear();
    // As the coordinator has: it was announced for a step that will not be.
    snapshot_.Forget();
  }
  std::vector<uint32_t> before = std::exchange(members_, {});
  for (const proto::Member& member : view.members()) {
    const size_t rank = static_cast<size_t>(member.rank());
    RUBATO_CHECK(rank < kMaxRanks);
    if (members_.size() <= rank) members_.resize(rank + 1, 0);
    members_[rank] = member.incarnation();
  }
  before.resize(std::max(before.size(), members_.size()), 0);
  for (int64_t block = blocks_.begin; block < blocks_.end; ++block) {
    BlockLedger& ledger = mutable_ledger(block);
    if (new_lineage) BeginLineage(block, view, actions);
    // Of workers that are gone, what has not been applied counts no more.
    std::deque<BlockLedger::Pending> kept;
    for (const BlockLedger::Pending& pending : ledger.queue) {
      if (IsMember(pending.contribution)) {
        kept.push_back(pending);
      } else if (!pending.counted_before) {
        actions->push_back(shard_action::Drop{pending.payload});
      }
    }
    ledger.queue = std::move(kept);
    ledger.clocks.resize(std::max(ledger.clocks.size(), members_.size()));
    for (size_t rank = 0; rank < ledger.clocks.size(); ++rank) {
      if (!IsMember(rank)) ledger.clocks[rank].waited_for = false;
    }
    for (const proto::Member& member : view.members()) {
      BlockLedger::Clock& clock = ledger.clocks[member.rank()];
      const bool is_new = new_lineage || before[member.rank()] != member.incarnation();
      if (!is_new && !member.has_start_clock()) continue;  // goes on with its own
      clock = {member.start_clock(), member.start_clock(), 0, is_new};
    }
    ledger.FindSlowest();
    // A worker's pull counts in its view: it asks anew.
    waiting_.ForgetBefore(block, view_);
    AnswerPulls(block, actions);
  }
  // Before anything changes: an answer is of the version that the block is at.
  for (const WaitingPulls::Early& early : waiting_.TakeEarly()) {
    OnPull(early.pull, early.blocks, actions).IgnoreError();
  }
  for (int64_t block = blocks_.begin; block < blocks_.end; ++block) Advance(block, actions);
}

// Nothing is under way, so what is still here is of those that were lost.
void Shard::BeginLineage(int64_t block, const proto::View& view, ShardActions* actions) {
  BlockLedger& ledger = mutable_ledger(block);
  RUBATO_CHECK(ledger.change == BlockLedger::Change::kNone);
  for (const auto& [leaf, node] : ledger.nodes) {
    actions->push_back(shard_action::Drop{node.payload});
  }
  ledger.nodes.clear();
  ledger.unpaired.clear();
  for (const BlockLedger::Pending& pending : ledger.queue) {
    if (!pending.counted_before) actions->push_back(shard_action::Drop{pending.payload});
  }
  ledger.queue.clear();
  ledger.clocks.clear();
  ledger.has_previous = false;
  ledger.measured = false;
  ledger.units = UnitSet(view.origin_unit());
  // All blocks begin at one version. One that lacks an update of others has left it out: a
  // contribution that was lost on its way, and not finite when it was computed once more.
  ledger.skipped += view.origin_unit() - ledger.version;
  ledger.version = view.origin_unit();
  measured_ = 0;
}

void Shard::OnClose(uint32_t view, ShardActions* actions) {
  if (view != view_ || terms_.closed) return;
  terms_.closed = true;
  terms_.readable = 0;
  for (const BlockLedger& ledger : ledgers_) {
    terms_.readable = std::max(terms_.readable, ledger.version);
  }
  terms_.limit = std::min(terms_.limit, terms_.readable + 1);
  if (IsApplying()) {
    answers_close_ = true;  // what it held would not stay true
  } else {
    actions->push_back(shard_action::Closed{});
  }
}

bool Shard::IsApplying() const {
  return policy_->ClosesAtRest() &&
         std::any_of(ledgers_.begin(), ledgers_.end(),
                     [](const BlockLedger& ledger) { return ledger.is_updating(); });
}

Sender Shard::SenderOf(const Contribution& contribution) const {
  if (contribution.worker == kObserver) return Sender::kObserver;
  if (contribution.view < view_) return Sender::kEarlier;
  // The next view follows when this shard, too, has closed this one. Who could read this shard's
  // blocks was a member, and is one.
  if (contribution.view > view_ + 1 || !IsMember(contribution)) return Sender::kNobody;
  return contribution.view == view_ ? Sender::kMember : Sender::kNext;
}

Sender Shard::SenderOf(const Pull& pull) const {
  if (pull.worker == kObserver) return Sender::kObserver;
  if (pull.view < view_) return Sender::kEarlier;
  if (pull.view == view_ + 1) return Sender::kNext;
  return pull.view == view_ && IsMember(pull.worker) ? Sender::kMember : Sender::kNobody;
}

absl::Status Shard::CheckOrigin(const Contribution& contribution) const {
  if (contribution.lineage > lineage_ ||
      (contribution.view == view_ && contribution.lineage != lineage_)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("contribution of view %d is of lineage %d; view %d is of lineage %d",
                        contribution.view, contribution.lineage, view_, lineage_));
  }
  const bool is_number =
      policy_ != nullptr && policy_->on_arrival() && contribution.lineage == lineage_;
  if (is_number && (contribution.unit < origin_ || contribution.unit >= until_)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "contribution is number %d; those of this lineage begin with %d and end before %d",
        contribution.unit, origin_, until_));
  }
  return absl::OkStatus();
}

absl::Status Shard::OnPush(int64_t block, const Contribution& contribution, PayloadId payload,
                           ShardActions* actions) {
  if (!blocks_.Contains(block)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("contribution is for block %d; this shard owns blocks %d to %d", block,
                        blocks_.begin, blocks_.end));
  }
  if (MaySend(FrameKind::kPush, SenderOf(contribution)) == Verdict::kRefused) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "contribution of view %d is from worker %d (incarnation %d), who is no member of view %d",
        contribution.view, contribution.worker, contribution.incarnation, view_));
  }
  RUBATO_RETURN_IF_ERROR(CheckOrigin(contribution));
  BlockLedger& ledger = mutable_ledger(block);
  bool is_new = false;
  const bool counts = policy_ != nullptr && contribution.lineage == lineage_ &&
                      policy_->MayCount(contribution, IsMember(contribution));
  if (counts) {
    absl::StatusOr<bool> admitted = policy_->Admit(ledger, contribution, terms_);
    if (!admitted.ok()) return admitted.status();
    is_new = *admitted;
  }
  if (is_new && contribution.view == view_ &&
      grants_.Denies(contribution.worker, contribution.clock, contribution.node)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "contribution of worker %d sums micro-batches %d to %d of step %d, which view %d grants "
        "to others",
        contribution.worker, contribution.node.begin, contribution.node.end, contribution.clock,
        view_));
  }
  if (!is_new) {
    ++duplicates_;
    actions->push_back(shard_action::Drop{payload});
    return absl::OkStatus();
  }
  if (!policy_->Enter(contribution, payload, &ledger)) {
    ++duplicates_;
    actions->push_back(shard_action::Drop{payload});
  }
  Advance(block, actions);
  return absl::OkStatus();
}

absl::Status Shard::OnPull(const Pull& pull, Range blocks, ShardActions* actions) {
  if (blocks.begin < blocks_.begin || blocks.end > blocks_.end || blocks.empty()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("pull is for blocks %d to %d; this shard owns blocks %d to %d",
                        blocks.begin, blocks.end, blocks_.begin, blocks_.end));
  }
  const Sender sender = SenderOf(pull);
  const Verdict verdict = MaySend(pull.retire ? FrameKind::kRetire : FrameKind::kPull, sender);
  if (verdict == Verdict::kRefused) {
    return absl::InvalidArgumentError(
        absl::StrFormat("pull of view %d is from worker %d, who is no member of view %d", pull.view,
                        pull.worker, view_));
  }
  // It asks anew when it hears of the next view.
  if (verdict == Verdict::kDropped) return absl::OkStatus();
  if (sender == Sender::kNext) {
    waiting_.ForgetPuller(pull.puller);  // one asks for one thing at a time
    waiting_.AddEarly(pull, blocks);
    return absl::OkStatus();
  }
  if (pull.retire && !policy_->on_arrival()) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "worker %d retires; in view %d nobody waits for its clock", pull.worker, view_));
  }
  for (int64_t block = blocks.begin; block < blocks.end; ++block) {
    BlockLedger& ledger = mutable_ledger(block);
    if (pull.worker != kObserver && policy_->on_arrival() &&
        ledger.clocks[pull.worker].waited_for == pull.retire) {
      ledger.clocks[pull.worker].waited_for = !pull.retire;
      ledger.FindSlowest();
      AnswerPulls(block, actions);
    }
    if (MayAnswer(ledger, pull)) {
      Send(block, pull, actions);
    } else if (!waiting_.Add(block, pull)) {
      return absl::ResourceExhaustedError(
          absl::StrFormat("%d others wait for block %d already", WaitingPulls::kMost, block));
    }
  }
  return absl::OkStatus();
}

bool Shard::MayAnswer(const BlockLedger& ledger, const Pull& pull) const {
  return policy_ != nullptr &&
         policy_->MayRead(ledger, terms_, pull.worker, pull.clock, pull.retire);
}

void Shard::AnswerPulls(int64_t block, ShardActions* actions) {
  waiting_.Answer(
      block, [&](const Pull& pull) { return MayAnswer(ledger(block), pull); },
      [&](const Pull& pull) { Send(block, pull, actions); });
}

void Shard::OnChanged(int64_t block, ShardActions* actions) {
  BlockLedger& ledger = mutable_ledger(block);
  RUBATO_CHECK(ledger.change != BlockLedger::Change::kNone);
  const bool is_updated = ledger.is_updating();
  const BlockLedger::Change change = std::exchange(ledger.change, BlockLedger::Change::kNone);
  if (is_updated) {
    OnUpdated(block, change == BlockLedger::Change::kSkip);
    // Before the next change: who waits for this version must not get a later one.
    MaybeCopy(block, actions);
    AnswerPulls(block, actions);
  } else if (change == BlockLedger::Change::kMeasure) {
    OnMeasured(block, actions);
  }
  Advance(block, actions);
  if (answers_close_ && !IsApplying()) {
    answers_close_ = false;
    actions->push_back(shard_action::Closed{});
  }
}

void Shard::OnUpdated(int64_t block, bool is_skipped) {
  BlockLedger& ledger = mutable_ledger(block);
  ledger.samples += ledger.next_samples();
  policy_->Strike(&ledger);
  if (is_skipped) ++ledger.skipped;
  ledger.measured = false;
  ++ledger.version;
}

void Shard::OnMeasured(int64_t block, ShardActions* actions) {
  BlockLedger& ledger = mutable_ledger(block);
  ledger.measured = true;
  if (++measured_ < blocks_.size()) return;
  measured_ = 0;
  proto::Question question;
  question.set_unit(ledger.version);
  question.mutable_measured();
  actions->push_back(shard_action::Ask{std::move(question)});
}

bool Shard::Ask(int64_t block, int64_t unit, ShardActions* actions) {
  RUBATO_CHECK(unit >= policy_->FirstOpen(ledger(block)));
  if (!terms_.asked.insert(unit).second) return false;
  proto::Question question;
  question.set_unit(unit);
  policy_->Ask(ledger(block), &question);
  actions->push_back(shard_action::Ask{std::move(question)});
  return true;
}

int64_t Shard::FirstOpen() const {
  int64_t open = ShardTerms::kNoLimit;
  for (const BlockLedger& ledger : ledgers_) open = std::min(open, policy_->FirstOpen(ledger));
  return open;
}

void Shard::OnDecision(const proto::Decision& decision, ShardActions* actions) {
  const int64_t open = FirstOpen();
  terms_.decisions.erase(terms_.decisions.begin(), terms_.decisions.lower_bound({FirstKept()}));
  terms_.asked.erase(terms_.asked.begin(), terms_.asked.lower_bound(open));
  // The first stands.
  if (decision.unit() < open || !terms_.decisions.emplace(SubjectOf(decision), decision).second) {
    return;
  }
  for (int64_t block = blocks_.begin; block < blocks_.end; ++block) Advance(block, actions);
}

void Shard::OnSnapshot(uint32_t id, int64_t step, ShardActions* actions) {
  if (policy_ == nullptr || id <= snapshot_.id()) return;
  int64_t highest = 0;
  for (const BlockLedger& ledger : ledgers_) {
    // What is being applied is written over the version before.
    highest = std::max(highest, ledger.version + (ledger.is_updating() ? 1 : 0));
  }
  if (policy_->blocks_in_step() && highest > step) {
    actions->push_back(shard_action::Missed{id, highest});
    return;
  }
  snapshot_.Begin(id, step);
  if (snapshot_.IsWhole()) actions->push_back(shard_action::Copied{id});
  for (int64_t block = blocks_.begin; block < blocks_.end; ++block) MaybeCopy(block, actions);
}

void Shard::MaybeCopy(int64_t block, ShardActions* actions) {
  const BlockLedger& ledger = ledgers_[block - blocks_.begin];
  if (!snapshot_.Lacks(block) || ledger.is_updating()) return;
  if (policy_->blocks_in_step() && ledger.version != snapshot_.step()) return;
  snapshot_.Add(block);
  actions->push_back(shard_action::Copy{block, ledger.version, snapshot_.id()});
  if (snapshot_.IsWhole()) actions->push_back(shard_action::Copied{snapshot_.id()});
}

void Shard::OnLeftOut(int64_t unit) {
  for (BlockLedger& ledger : ledgers_) ledger.units.Insert(unit);
}

void Shard::Restore(int64_t block, int64_t version, int64_t samples, int64_t skipped,
                    UnitSet units) {
  BlockLedger& ledger = mutable_ledger(block);
  ledger.version = version;
  ledger.samples = samples;
  ledger.skipped = skipped;
  ledger.units = std::move(units);
}

void Shard::Advance(int64_t block, ShardActions* actions) {
  BlockLedger& ledger = mutable_ledger(block);
  if (ledger.change != BlockLedger::Change::kNone) return;
  if (snapshot_.Lacks(block)) MaybeCopy(block, actions);
  // What it said at the close is to stay true.
  if (!terms_.closed && policy_->Settle(&ledger)) AnswerPulls(block, actions);
  for (bool goes_on = true; goes_on;) {
    const NextChange next = policy_->Next(terms_, &ledger);
    goes_on = false;
    switch (next.kind) {
      case NextChange::Kind::kNone:
        break;
      case NextChange::Kind::kDrop:
        Drop(block, next.first, actions);
        goes_on = true;
        break;
      case NextChange::Kind::kAsk:
        goes_on = Ask(block, next.first, actions);
        break;
      case NextChange::Kind::kSum:
        Sum(block, next, actions);
        break;
      case NextChange::Kind::kMeasure:
      case NextChange::Kind::kSkip:
      case NextChange::Kind::kApply:
        Apply(block, next, actions);
    }
  }
}

void Shard::Drop(int64_t block, int64_t leaf, ShardActions* actions) {
  auto& nodes = mutable_ledger(block).nodes;
  const auto node = nodes.find(leaf);
  RUBATO_CHECK(node != nodes.end());
  ++duplicates_;
  actions->push_back(shard_action::Drop{node->second.payload});
  nodes.erase(node);
}

void Shard::Apply(int64_t block, const NextChange& change, ShardActions* actions) {
  BlockLedger& ledger = mutable_ledger(block);
  const PayloadId payload = ledger.next_payload();
  const int64_t samples = ledger.next_samples();
  if (change.kind == NextChange::Kind::kMeasure) {
    ledger.change = BlockLedger::Change::kMeasure;
    actions->push_back(shard_action::Measure{block, payload, ledger.next_weight()});
    return;
  }
  if (change.kind == NextChange::Kind::kSkip) {
    ledger.change = BlockLedger::Change::kSkip;
    actions->push_back(shard_action::Skip{block, payload, samples, ledger.version + 1});
    return;
  }
  ledger.change = BlockLedger::Change::kApply;
  shard_action::Apply apply;
  apply.block = block;
  apply.payload = payload;
  apply.samples = samples;
  apply.weight = ledger.next_weight();
  apply.samples_before = ledger.samples;
  apply.updates_before = ledger.version - ledger.skipped;
  apply.rate = policy_->RateOf(samples);
  apply.keeps_previous = policy_->blocks_in_step();
  apply.factor = change.factor;
  apply.version = ledger.version + 1;
  actions->push_back(apply);
}

void Shard::Sum(int64_t block, const NextChange& change, ShardActions* actions) {
  BlockLedger& ledger = mutable_ledger(block);
  auto sum = ledger.nodes.find(change.first);
  auto other = change.first < change.second ? std::next(sum) : std::prev(sum);  // it lies beside
  actions->push_back(shard_action::Sum{block, sum->second.payload, other->second.payload});
  BlockLedger::Node& both = sum->second;
  const BlockLedger::Node& added = other->second;
  both.samples += added.samples;
  both.weight += added.weight;
  both.leaves = {std::min(change.first, change.second),
                 std::max(both.leaves.end, added.leaves.end)};
  if (other->first < sum->first) {  // nodes are named by their first leaf
    other->second = sum->second;
    std::swap(sum, other);
  }
  ledger.unpaired.push_back(sum->first);
  ledger.nodes.erase(other);
  ledger.change = BlockLedger::Change::kSum;
}

void Shard::Send(int64_t block, const Pull& pull, ShardActions* actions) const {
  const BlockLedger& from = ledger(block);
  shard_action::Send send;
  send.puller = pull.puller;
  send.block = block;
  send.clock = pull.clock;
  send.pull = pull.number;
  send.worker = pull.worker;
  send.codec = pull.codec;
  send.previous = policy_->ReadsPrevious(from, pull.clock);
  send.version = from.version - (send.previous ? 1 : 0);
  if (pull.worker != kObserver) send.staleness = from.clocks[pull.worker].staleness;
  actions->push_back(send);
}

}  // namespace rubato
