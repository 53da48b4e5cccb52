#include "server/shard/shard_protocol.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "common/base/exit_code.h"
#include "common/base/max_count.h"
#include "common/base/overloaded.h"
#include "common/base/status.h"
#include "common/consistency/block_units.h"
#include "common/space/modes.h"
#include "server/shard/shard_answers.h"

namespace rubato {
namespace {

constexpr int kMaxRanks = 1 << 16;  // cluster.workers.max is at most this

// What any view of a job is: it may come of a recording, or of who is no coordinator.
absl::Status CheckView(const proto::View& view) {
  if (view.number() == 0) return absl::InvalidArgumentError("a view has no number");
  RUBATO_RETURN_IF_ERROR(CheckLayout(view.layout()));
  if (TrainableCount(view.layout()) <= 0) {
    return absl::InvalidArgumentError(absl::StrFormat("view %d has no parameters", view.number()));
  }
  if (view.leaves() < 1 || view.leaves() > kMaxCount || view.origin_unit() < 0 ||
      view.origin_unit() > kMaxCount) {
    return absl::InvalidArgumentError(
        absl::StrFormat("view %d has units of %d micro-batches, the first of which is number %d",
                        view.number(), view.leaves(), view.origin_unit()));
  }
  for (const proto::Member& member : view.members()) {
    if (member.rank() < 0 || member.rank() >= kMaxRanks) {
      return absl::InvalidArgumentError(
          absl::StrFormat("view %d has a member of rank %d, expected 0 to %d", view.number(),
                          member.rank(), kMaxRanks - 1));
    }
  }
  return absl::OkStatus();
}

Contribution ContributionOf(const Frame& frame) {
  Contribution contribution;
  contribution.view = frame.view;
  contribution.lineage = frame.lineage;
  contribution.worker = frame.worker;
  contribution.incarnation = frame.incarnation;
  contribution.clock = static_cast<int64_t>(frame.clock);
  contribution.unit = static_cast<int64_t>(frame.unit);
  contribution.node = frame.node();
  contribution.samples = frame.samples;
  contribution.weight = frame.weight;
  contribution.read_version = static_cast<int64_t>(frame.version);
  return contribution;
}

Pull PullOf(uint64_t stream, const Frame& frame) {
  Pull pull;
  pull.puller = stream;
  pull.worker = frame.worker;
  pull.view = frame.view;
  pull.clock = static_cast<int64_t>(frame.clock);
  pull.number = frame.unit;
  pull.retire = frame.kind == FrameKind::kRetire;
  pull.codec = frame.codec;
  return pull;
}

}  // namespace

absl::Status ShardProtocol::Handle(const ShardEvent& event) {
  absl::Status status = std::visit([this](const auto& what) { return On(what); }, event);
  if (!status.ok()) sink_(shard_outcome::Refused{status});
  return status;
}

absl::Status ShardProtocol::On(const shard_event::Message& event) {
  const proto::CoordinatorMessage& message = event.message;
  if (message.has_view()) {
    proto::PeerMessage answer;
    if (const absl::Status status = Open(message.view()); status.ok()) {
      answer.mutable_shard_opened()->set_view(message.view().number());
    } else {
      answer.mutable_failure()->set_exit_code(ExitCode(status));
      answer.mutable_failure()->set_reason(std::string(status.message()));
    }
    Say(std::move(answer));
    return absl::OkStatus();
  }
  if (message.has_report_request()) Report();
  if (!core_.has_value()) return absl::OkStatus();  // nothing else has a meaning yet
  ShardActions actions = NoActions();
  switch (message.kind_case()) {
    case proto::CoordinatorMessage::kClose:
      core_->OnClose(message.close().view(), &actions);
      break;
    case proto::CoordinatorMessage::kLeftOut:
      core_->OnLeftOut(message.left_out().unit());
      break;
    case proto::CoordinatorMessage::kRestore:
      Restore(message.restore());
      break;
    case proto::CoordinatorMessage::kSnapshot:
      // One at a time: older ones are written, or some shard has missed its part.
      while (!snapshots_.empty() && snapshots_.begin()->first < message.snapshot().id()) {
        ReleaseSnapshot(snapshots_.begin()->first);
      }
      snapshots_[message.snapshot().id()].folder = message.snapshot().parts_folder();
      core_->OnSnapshot(message.snapshot().id(), message.snapshot().step(), &actions);
      break;
    case proto::CoordinatorMessage::kReleaseSnapshot:
      ReleaseSnapshot(message.release_snapshot().id());
      break;
    case proto::CoordinatorMessage::kDecision:
      core_->OnDecision(message.decision(), &actions);
      break;
    default:
      break;  // not for shards
  }
  Run(std::move(actions));
  return absl::OkStatus();
}

absl::Status ShardProtocol::Open(const proto::View& view) {
  RUBATO_RETURN_IF_ERROR(CheckView(view));
  const bool is_first = !core_.has_value();
  if (is_first) {
    RUBATO_ASSIGN_OR_RETURN(const Range blocks, OpenValues(view));
    core_.emplace(blocks, policies_);
    squares_.emplace(TrainableCount(view.layout()));
    restore_key_ = view.restore_key();
  }
  if (view.number() > core_->view()) {
    if (view.lineage() != view_.lineage()) earlier_decisions_.clear();  // units are others
    names_.SetMembers(view);
    view_ = view;
    view_.clear_members();
    view_.clear_shards();
    view_.clear_layout();
    view_.clear_assignments();
  }
  ShardActions actions = NoActions();
  core_->OnView(view, &actions);
  if (is_first && kept_.has_value()) RestoreKept(view);
  Run(std::move(actions));
  return absl::OkStatus();
}

absl::StatusOr<Range> ShardProtocol::OpenValues(const proto::View& view) {
  if (!view.has_kept_term()) {
    kept_.reset();  // first: memory may not hold both
    return values_->Open(view);
  }
  // Its term, or one that was to go on with the values of that and did not begin.
  const bool has_them = kept_.has_value() && (kept_->state.view().term() == view.kept_term() ||
                                              kept_->state.view().kept_term() == view.kept_term());
  if (!has_them) {
    return absl::AbortedError(
        absl::StrFormat("view %d goes on with the values of term %d, which this shard has not kept",
                        view.number(), view.kept_term()));
  }
  absl::StatusOr<Range> blocks = kept_->values->GoOn(view);
  if (!blocks.ok()) return absl::AbortedError(blocks.status().message());
  values_ = std::move(kept_->values);
  return blocks;
}

void ShardProtocol::RestoreKept(const proto::View& view) {
  const proto::View& before = kept_->state.view();
  const bool on_arrival = OnArrival(before.mode());
  for (size_t i = 0; i < kept_->has_previous.size(); ++i) {
    const proto::BlockState block =
        AsGoesOn(view, before, kept_->state.blocks(static_cast<int>(i)));
    core_->Restore(block.block(), block.version(), block.samples(), block.skipped(),
                   UnitsOf(block));
    if (kept_->has_previous[i]) core_->RestorePrevious(block.block());
  }
  const bool is_ended = on_arrival && before.origin_unit() != view.origin_unit();
  if (core_->policy().on_arrival() == on_arrival && !is_ended) {
    const auto& decisions = kept_->state.decisions();
    earlier_decisions_.assign(decisions.begin(), decisions.end());
  }
  kept_.reset();
}

std::optional<KeptShard> ShardProtocol::TakeKept() {
  if (!core_.has_value()) return std::move(kept_);
  while (!due_.empty()) {
    const auto first = std::min_element(
        due_.begin(), due_.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    On(shard_event::ChangeDue{first->first}).IgnoreError();
  }
  if (restore_key_ != 0) return std::nullopt;
  KeptShard kept;
  kept.values = std::move(values_);
  *kept.state.mutable_view() = view_;
  const Range blocks = core_->blocks();
  for (int64_t block = blocks.begin; block < blocks.end; ++block) {
    *kept.state.add_blocks() = BlockStateMessage(*core_, block);
    kept.has_previous.push_back(core_->ledger(block).has_previous);
  }
  const int64_t first = core_->FirstKept();
  for (const auto& [subject, decision] : core_->decisions()) {
    if (subject.unit >= first) *kept.state.add_decisions() = decision;
  }
  for (const proto::Decision& decision : earlier_decisions_) {
    if (decision.unit() >= first) *kept.state.add_decisions() = decision;
  }
  return kept;
}

void ShardProtocol::Restore(const proto::Restore& restore) {
  if (restore_key_ == 0) return;
  const bool is_new = restore_expected_ < 0;
  restore_expected_ = static_cast<int64_t>(restore.blocks_size()) * (1 + restore.slots());
  for (const proto::BlockState& block : restore.blocks()) {
    if (!core_->blocks().Contains(block.block())) continue;  // of another shard
    core_->Restore(block.block(), block.version(), block.samples(), block.skipped(),
                   UnitsOf(block));
  }
  if (restore.has_path() && is_new && restore_expected_ > 0) {
    sink_(shard_outcome::ReadPart{restore.path(), restore.digest(), core_->blocks(),
                                  restore.slots(), restore_key_});
  }
  MaybeSayRestored();
}

void ShardProtocol::ReleaseSnapshot(uint32_t id) {
  const auto released = snapshots_.find(id);
  if (released == snapshots_.end()) return;
  if (!released->second.folder.empty()) sink_(shard_outcome::ForgetPart{id});
  snapshots_.erase(released);
}

void ShardProtocol::MaybeSayRestored() {
  if (static_cast<int64_t>(restored_.size()) != restore_expected_) return;
  restore_key_ = 0;
  restored_.clear();
  proto::PeerMessage answer;
  answer.mutable_shard_restored();
  Say(std::move(answer));
}

void ShardProtocol::Report() {
  proto::PeerMessage answer;
  answer.mutable_shard_report();  // without blocks before the first view
  if (core_.has_value()) *answer.mutable_shard_report() = ReportMessage(*core_);
  answer.mutable_shard_report()->set_pushed_bytes(pushed_bytes_);
  answer.mutable_shard_report()->set_pulled_bytes(pulled_bytes_);
  Say(std::move(answer));
}

absl::Status ShardProtocol::On(const shard_event::Arrival& event) {
  const FrameKind kind = event.frame.kind;
  if (!core_.has_value() && MaySend(kind, Sender::kUnknown) == Verdict::kRefused) {
    return absl::FailedPreconditionError("the job has not begun: no view holds yet");
  }
  RUBATO_RETURN_IF_ERROR(CheckNumbers(event.frame));
  switch (kind) {
    case FrameKind::kPush:
      return OnPush(event.stream, event.frame, event.values);
    case FrameKind::kPull:
    case FrameKind::kRetire:
      return event.frame.snapshot != 0 ? SendSnapshot(event.stream, event.frame)
                                       : OnPull(event.stream, event.frame);
    case FrameKind::kRestore:
      return OnRestoredBlock(event.frame, event.values);
    case FrameKind::kParameters:
      break;
  }
  return absl::InvalidArgumentError("a shard takes pushes and pulls; this frame has parameters");
}

absl::Status ShardProtocol::CheckNumbers(const Frame& frame) {
  constexpr uint64_t kMost = kMaxCount;
  if (std::max({frame.clock, frame.version, frame.unit}) <= kMost) return absl::OkStatus();
  for (const auto& [name, number] :
       {std::pair("clock", frame.clock),
        {"version", frame.kind == FrameKind::kPush ? frame.version : 0},
        {"unit", frame.kind == FrameKind::kRestore ? 0 : frame.unit}}) {
    if (number > kMost) {
      return absl::InvalidArgumentError(
          absl::StrFormat("frame has %s %d; expected at most %d", name, number, kMost));
    }
  }
  return absl::OkStatus();
}

absl::Status ShardProtocol::CheckBlock(const Frame& frame, const ReceivedValues& values) const {
  const int64_t block = static_cast<int64_t>(frame.block);
  if (!core_->blocks().Contains(block)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("gradient is for block %d; this shard owns blocks %d to %d", block,
                        core_->blocks().begin, core_->blocks().end));
  }
  if (values.size() != values_->BlockSize(block)) {
    return absl::InvalidArgumentError(absl::StrFormat("gradient has %d values; block %d holds %d",
                                                      values.size(), block,
                                                      values_->BlockSize(block)));
  }
  return absl::OkStatus();
}

absl::Status ShardProtocol::CheckName(uint64_t stream, const Frame& frame) {
  if (frame.worker == kObserver) return absl::OkStatus();
  const uint32_t member = core_->Incarnation(frame.worker);
  StreamNames::Name name{frame.worker, frame.incarnation};
  if (frame.kind != FrameKind::kPush) name.incarnation = frame.view == core_->view() ? member : 0;
  const bool is_member = member != 0 && name.incarnation == member;
  if (frame.kind != FrameKind::kPush) names_.Show(stream, frame.version);
  const absl::Status status = names_.Check(stream, name, is_member);
  return MaySend(frame.kind, Sender::kImpostor) == Verdict::kRefused ? status : absl::OkStatus();
}

absl::Status ShardProtocol::OnPush(uint64_t stream, const Frame& frame,
                                   const ReceivedValues& values) {
  RUBATO_RETURN_IF_ERROR(CheckBlock(frame, values));
  RUBATO_RETURN_IF_ERROR(CheckName(stream, frame));
  pushed_bytes_ += frame.payload_bytes;
  const PayloadId payload = values_->Arrive(frame, values);
  ShardActions actions = NoActions();
  const absl::Status status =
      core_->OnPush(static_cast<int64_t>(frame.block), ContributionOf(frame), payload, &actions);
  if (!status.ok()) values_->Release(payload);
  Run(std::move(actions));
  values_->EndArrival();
  return status;
}

absl::Status ShardProtocol::OnPull(uint64_t stream, const Frame& frame) {
  if (frame.codec == Codec::kInt8 || frame.codec == Codec::kTopK) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "pull asks for parameters in %s; expected float32, bf16 or fp16", CodecName(frame.codec)));
  }
  RUBATO_RETURN_IF_ERROR(CheckName(stream, frame));
  ShardActions actions = NoActions();
  const absl::Status status = core_->OnPull(PullOf(stream, frame), frame.blocks(), &actions);
  Run(std::move(actions));
  return status;
}

absl::Status ShardProtocol::OnRestoredBlock(const Frame& frame, const ReceivedValues& values) {
  // The key is what only servers are told.
  if (restore_key_ == 0 || frame.unit != restore_key_ || frame.worker != kObserver) {
    return absl::InvalidArgumentError("nothing is being restored");
  }
  RUBATO_RETURN_IF_ERROR(CheckBlock(frame, values));
  if (frame.slot > values_->slots() || !restored_.emplace(frame.block, frame.slot).second) {
    return absl::InvalidArgumentError(
        absl::StrFormat("slot %d of block %d is restored already, or is none of the optimizer's %d",
                        frame.slot, frame.block, values_->slots()));
  }
  values_->Restore(static_cast<int64_t>(frame.block), frame.slot, values);
  MaybeSayRestored();
  return absl::OkStatus();
}

absl::Status ShardProtocol::SendSnapshot(uint64_t stream, const Frame& frame) const {
  if (frame.worker != kObserver || frame.kind != FrameKind::kPull) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "worker %d asks for snapshot %d; observers do", frame.worker, frame.snapshot));
  }
  const auto snapshot = snapshots_.find(frame.snapshot);
  if (snapshot == snapshots_.end()) {
    return absl::NotFoundError(absl::StrFormat("there is no snapshot %d", frame.snapshot));
  }
  for (const auto& [block, copy] : snapshot->second.blocks) {
    if (!frame.blocks().Contains(block)) continue;
    Frame answer;
    answer.kind = FrameKind::kParameters;
    answer.block = static_cast<uint64_t>(block);
    answer.version = static_cast<uint64_t>(copy.state.version());
    answer.snapshot = frame.snapshot;
    for (const Payload& values : copy.values) {
      sink_(shard_outcome::Sent{stream, answer, values});
      ++answer.slot;
    }
  }
  return absl::OkStatus();
}

absl::Status ShardProtocol::On(const shard_event::StreamGone& event) {
  names_.Forget(event.stream);
  if (core_.has_value()) core_->OnPullerGone(event.stream);
  return absl::OkStatus();
}

absl::Status ShardProtocol::On(const shard_event::ChangeDue& event) {
  const auto due = due_.find(event.block);
  RUBATO_CHECK(due != due_.end());
  const Change change = due->second;
  due_.erase(due);
  ShardActions actions = NoActions();
  std::visit([&](const auto& what) { End(what, &actions); }, change);
  Run(std::move(actions));
  return absl::OkStatus();
}

ShardActions ShardProtocol::NoActions() {
  ShardActions actions = std::move(spare_);
  actions.clear();
  return actions;
}

void ShardProtocol::Run(ShardActions actions) {
  for (size_t i = 0; i < actions.size(); ++i) {
    // Changes are copied: more may be appended.
    std::visit(Overloaded{[&](shard_action::Sum sum) { Begin(sum, &actions); },
                          [&](shard_action::Apply apply) { Begin(apply, &actions); },
                          [&](shard_action::Measure measure) { Begin(measure, &actions); },
                          [&](shard_action::Skip skip) { Begin(skip, &actions); },
                          [&](const auto& other) { Do(other); }},
               actions[i]);
  }
  spare_ = std::move(actions);
}

template <typename ShardChange>
void ShardProtocol::Begin(const ShardChange& change, ShardActions* actions) {
  if (values_->TakesTime(change.block)) {
    RUBATO_CHECK(due_.emplace(change.block, change).second);
  } else {
    End(change, actions);
  }
}

template <typename ShardChange>
void ShardProtocol::End(const ShardChange& change, ShardActions* actions) {
  Make(change);
  core_->OnChanged(change.block, actions);
}

void ShardProtocol::Make(const shard_action::Apply& apply) {
  const ShardValues::Block block = values_->Apply(apply);
  sink_(shard_outcome::Updated{apply.block, apply.version, block.parameters, block.slots});
}

void ShardProtocol::Make(const shard_action::Measure& measure) {
  measured_.set_weight(measure.weight);
  const std::optional<int64_t> non_finite = values_->Measure(measure, &*squares_);
  if (!non_finite.has_value()) return;
  if (!measured_.has_non_finite() || *non_finite < measured_.non_finite()) {
    measured_.set_non_finite(*non_finite);
  }
}

void ShardProtocol::Do(const shard_action::Send& send) {
  // In place: a frame is large.
  ShardOutcome outcome(std::in_place_type<shard_outcome::Sent>);
  auto& [stream, frame, payload] = std::get<shard_outcome::Sent>(outcome);
  stream = send.puller;
  frame.kind = FrameKind::kParameters;
  frame.view = core_->view();
  frame.block = static_cast<uint64_t>(send.block);
  frame.clock = static_cast<uint64_t>(send.clock);
  frame.version = static_cast<uint64_t>(send.version);
  frame.unit = send.pull;
  frame.staleness = static_cast<uint32_t>(send.staleness);
  payload = values_->Read(send, &frame);
  // Else a version is written over as soon as nobody reads it.
  payload.may_lend = core_->policy().blocks_in_step();
  if (send.worker != kObserver) pulled_bytes_ += frame.payload_bytes;
  sink_(outcome);
}

void ShardProtocol::Do(const shard_action::Drop& drop) { values_->Release(drop.payload); }

void ShardProtocol::Do(const shard_action::Ask& ask) {
  proto::PeerMessage message;
  *message.mutable_question() = ask.question;
  if (ask.question.has_measured()) {
    for (const SumOfSquares::Node& node : squares_->nodes()) {
      proto::Question::Measured::Node* out = measured_.add_nodes();
      out->set_begin(node.leaves.begin);
      out->set_end(node.leaves.end);
      out->set_sum(node.sum);
    }
    squares_->Clear();
    message.mutable_question()->mutable_measured()->Swap(&measured_);
  }
  Say(std::move(message));
}

void ShardProtocol::Do(const shard_action::Copy& copy) {
  snapshots_[copy.snapshot].blocks[copy.block] = {BlockStateMessage(*core_, copy.block),
                                                  values_->Copy(copy.block)};
}

void ShardProtocol::Do(const shard_action::Copied& copied) {
  proto::PeerMessage message;
  message.mutable_snapshot_copied()->set_id(copied.snapshot);
  const Snapshot& snapshot = snapshots_[copied.snapshot];
  for (const auto& [block, copy] : snapshot.blocks) {
    *message.mutable_snapshot_copied()->add_blocks() = copy.state;
  }
  Say(std::move(message));
  if (snapshot.folder.empty()) return;
  sink_(shard_outcome::WritePart{copied.snapshot, snapshot.folder, snapshot.blocks});
}

void ShardProtocol::Do(const shard_action::Missed& missed) {
  proto::PeerMessage message;
  message.mutable_snapshot_missed()->set_id(missed.snapshot);
  message.mutable_snapshot_missed()->set_version(missed.version);
  Say(std::move(message));
}

void ShardProtocol::Do(const shard_action::Closed&) {
  proto::PeerMessage message;
  *message.mutable_shard_closed() = ClosedMessage(*core_);
  Say(std::move(message));
}

}  // namespace rubato
