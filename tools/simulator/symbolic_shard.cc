#include "tools/simulator/symbolic_shard.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/base/overloaded.h"
#include "common/base/status.h"
#include "server/shard/shard_closed.h"

namespace rubato {

SymbolicShard::SymbolicShard(const Blocks* blocks, int shard, uint64_t seed, bool measures,
                             bool leaves_out, Sender send, Reporter report, Defer defer,
                             Observer* observer)
    : blocks_(blocks),
      seed_(seed),
      measures_(measures),
      leaves_out_(leaves_out),
      send_(std::move(send)),
      report_(std::move(report)),
      defer_(std::move(defer)),
      observer_(observer),
      core_(blocks->placement.Blocks(shard)),
      previous_(core_.blocks().size()),
      deferred_(core_.blocks().size()),
      squares_(blocks->placement.space().values()) {
  for (int64_t block = core_.blocks().begin; block < core_.blocks().end; ++block) {
    values_.push_back(InitialSymbol(seed_, block));
  }
}

PayloadId SymbolicShard::Keep(uint64_t symbol, const Frame& frame) {
  int64_t index = free_;
  if (index < 0) {
    index = static_cast<int64_t>(held_.size());
    held_.emplace_back();
    if (observer_ != nullptr) frames_.emplace_back();
  } else {
    free_ = held_[index].next_free;
  }
  held_[index] = {symbol, kInUse};
  if (observer_ != nullptr) frames_[index] = frame;
  return static_cast<PayloadId>(index) + 1;
}

void SymbolicShard::Release(PayloadId id) {
  Held& held = held_[id - 1];
  RUBATO_CHECK(held.next_free == kInUse);
  held.next_free = free_;
  free_ = static_cast<int64_t>(id) - 1;
}

void SymbolicShard::OnMessage(const proto::CoordinatorMessage& message) {
  proto::PeerMessage answer;
  ShardActions actions;
  switch (message.kind_case()) {
    case proto::CoordinatorMessage::kView:
      core_.OnView(message.view(), &actions);
      answer.mutable_shard_opened()->set_view(message.view().number());
      Answer(answer);
      break;
    case proto::CoordinatorMessage::kClose:
      core_.OnClose(message.close().view(), &actions);
      break;
    case proto::CoordinatorMessage::kLeftOut:
      core_.OnLeftOut(message.left_out().unit());
      break;
    case proto::CoordinatorMessage::kSnapshot:
      core_.OnSnapshot(message.snapshot().id(), message.snapshot().step(), &actions);
      break;
    case proto::CoordinatorMessage::kReleaseSnapshot:
      snapshots_.erase(snapshots_.begin(), snapshots_.upper_bound(message.release_snapshot().id()));
      break;
    case proto::CoordinatorMessage::kVerdict:
      core_.OnVerdict(message.verdict().step(), message.verdict().apply(),
                      message.verdict().factor(), &actions);
      break;
    case proto::CoordinatorMessage::kReportRequest:
      *answer.mutable_shard_report() = ReportMessage(core_);
      Answer(answer);
      break;
    default:
      break;  // not for shards, or of no meaning here
  }
  Run(&actions);
}

absl::Status SymbolicShard::OnFrame(uint64_t stream, const Frame& frame, Content content) {
  const int64_t block = static_cast<int64_t>(frame.block);
  ShardActions actions = std::move(spare_);
  actions.clear();
  if (frame.kind == FrameKind::kPull || frame.kind == FrameKind::kRetire) {
    struct Pull pull;
    pull.puller = stream;
    pull.worker = frame.worker;
    pull.view = frame.view;
    pull.clock = static_cast<int64_t>(frame.clock);
    pull.number = frame.unit;
    pull.retire = frame.kind == FrameKind::kRetire;
    RUBATO_RETURN_IF_ERROR(
        core_.OnPull(pull, {block, block + static_cast<int64_t>(frame.block_count)}, &actions));
  } else {
    RUBATO_CHECK(frame.kind == FrameKind::kPush);
    Contribution contribution;
    contribution.view = frame.view;
    contribution.lineage = frame.lineage;
    contribution.worker = frame.worker;
    contribution.incarnation = frame.incarnation;
    contribution.clock = static_cast<int64_t>(frame.clock);
    contribution.unit = static_cast<int64_t>(frame.unit);
    contribution.node = frame.node();
    contribution.samples = frame.samples;
    contribution.read_version = static_cast<int64_t>(frame.version);
    const PayloadId id = Keep(content.symbol, frame);
    if (absl::Status status = core_.OnPush(block, contribution, id, &actions); !status.ok()) {
      Release(id);
      return status;
    }
    const bool is_dropped = std::any_of(actions.begin(), actions.end(), [id](const auto& action) {
      const auto* drop = std::get_if<shard_action::Drop>(&action);
      return drop != nullptr && drop->payload == id;
    });
    if (!is_dropped) previous_[block - core_.blocks().begin].reset();
  }
  Run(&actions);
  spare_ = std::move(actions);
  return absl::OkStatus();
}

void SymbolicShard::Run(ShardActions* actions) {
  for (size_t i = 0; i < actions->size(); ++i) {
    const ShardAction action = (*actions)[i];  // a copy: more may be appended
    const auto change = [&](int64_t block) {
      RUBATO_CHECK(!deferred_[block - core_.blocks().begin].has_value());
      if (defer_ && defer_(block)) {
        deferred_[block - core_.blocks().begin] = action;
      } else {
        Change(action, actions);
      }
    };
    std::visit(Overloaded{[&](const shard_action::Sum& sum) { change(sum.block); },
                          [&](const shard_action::Apply& apply) { change(apply.block); },
                          [&](const shard_action::Measure& measure) { change(measure.block); },
                          [&](const shard_action::Skip& skip) { change(skip.block); },
                          [&](const shard_action::Send& send) { SendBlock(send); },
                          [&](const shard_action::Drop& drop) { Release(drop.payload); },
                          [&](const shard_action::Measured& done) { ReportMeasured(done.step); },
                          [&](const shard_action::Copy& copy) {
                            snapshots_[copy.snapshot][copy.block] = {
                                BlockStateMessage(core_, copy.block), value(copy.block)};
                          },
                          [&](const shard_action::Copied& done) {
                            proto::PeerMessage message;
                            message.mutable_snapshot_copied()->set_id(done.snapshot);
                            for (const auto& [block, copy] : snapshots_[done.snapshot]) {
                              *message.mutable_snapshot_copied()->add_blocks() = copy.state;
                            }
                            Answer(message);
                          },
                          [&](const shard_action::Missed& missed) {
                            proto::PeerMessage message;
                            message.mutable_snapshot_missed()->set_id(missed.snapshot);
                            message.mutable_snapshot_missed()->set_version(missed.version);
                            Answer(message);
                          },
                          [&](const shard_action::Closed&) {
                            proto::PeerMessage message;
                            *message.mutable_shard_closed() = ClosedMessage(core_);
                            Answer(message);
                          }},
               action);
  }
}

void SymbolicShard::SendBlock(const shard_action::Send& action) {
  Frame frame;
  frame.kind = FrameKind::kParameters;
  frame.view = core_.view();
  frame.block = static_cast<uint64_t>(action.block);
  frame.clock = static_cast<uint64_t>(action.clock);
  frame.version = static_cast<uint64_t>(action.version);
  frame.unit = action.pull;
  frame.staleness = static_cast<uint32_t>(action.staleness);
  Content content;
  content.symbol = value(action.block);
  if (action.previous) {
    // A buffer that is gone has no value that anybody could want.
    content.symbol =
        previous_[action.block - core_.blocks().begin].value_or(InitialSymbol(~seed_, -1));
  }
  send_(action.puller, frame, std::move(content));
}

void SymbolicShard::ReportMeasured(int64_t step) {
  proto::PeerMessage message;
  measured_.set_step(step);
  for (const SumOfSquares::Node& node : squares_.nodes()) {
    proto::ShardMeasured::Node* out = measured_.add_nodes();
    out->set_begin(node.leaves.begin);
    out->set_end(node.leaves.end);
    out->set_sum(node.sum);
  }
  squares_.Clear();
  message.mutable_shard_measured()->Swap(&measured_);
  Answer(message);
}

void SymbolicShard::Change(const ShardAction& action, ShardActions* actions) {
  int64_t block = -1;
  if (const auto* sum = std::get_if<shard_action::Sum>(&action)) {
    block = sum->block;
    Held& held = held_[sum->payload - 1];
    held.symbol = SumSymbol(held.symbol, held_[sum->other - 1].symbol);
    Release(sum->other);
  } else if (const auto* apply = std::get_if<shard_action::Apply>(&action)) {
    block = apply->block;
    const Held& held = held_[apply->payload - 1];
    const UpdateTerms terms{apply->samples, apply->samples_before, apply->updates_before,
                            apply->on_arrival, apply->factor};
    uint64_t& value = mutable_value(block);
    previous_[block - core_.blocks().begin] = value;
    value = UpdateSymbol(value, held.symbol, terms);
    if (observer_ != nullptr) {
      observer_->OnApplied(block, frames_[apply->payload - 1], terms, apply->version, held.symbol,
                           value);
    }
    Release(apply->payload);
  } else if (const auto* measure = std::get_if<shard_action::Measure>(&action)) {
    block = measure->block;
    Measure(*measure);
  } else {
    const auto& skip = std::get<shard_action::Skip>(action);
    block = skip.block;
    if (observer_ != nullptr) {
      observer_->OnSkipped(block, frames_[skip.payload - 1], skip.samples, skip.version);
    }
    previous_[block - core_.blocks().begin] = value(block);
    Release(skip.payload);
  }
  core_.OnChanged(block, actions);
}

void SymbolicShard::Measure(const shard_action::Measure& action) {
  measured_.set_samples(action.samples);
  if (!measures_) return;
  const uint64_t gradient = held_[action.payload - 1].symbol;
  const Range values = blocks_->placement.space().BlockValues(action.block);
  if (leaves_out_ && !IsFinite(gradient)) {
    if (!measured_.has_non_finite() || values.begin < measured_.non_finite()) {
      measured_.set_non_finite(values.begin);
    }
    return;
  }
  std::vector<float> floats(values.size());
  floats[0] = NormOf(gradient);
  squares_.Add(values.begin, floats);
}

void SymbolicShard::OnDeferred(int64_t block) {
  std::optional<ShardAction>& deferred = deferred_[block - core_.blocks().begin];
  RUBATO_CHECK(deferred.has_value());
  const ShardAction action = *deferred;
  deferred.reset();
  ShardActions actions;
  Change(action, &actions);
  Run(&actions);
}

}  // namespace rubato
