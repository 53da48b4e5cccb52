#include "server/shard/shard_engine.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "common/base/finite.h"
#include "common/base/kernels.h"
#include "common/base/overloaded.h"
#include "common/base/process_exit.h"
#include "common/base/status.h"
#include "common/space/job_codec.h"
#include "common/space/placement.h"
#include "server/shard/shard_closed.h"
#include "server/shard/shard_events.h"

namespace rubato {

absl::StatusOr<std::unique_ptr<ShardEngine>> ShardEngine::Create(
    const proto::Job& job, int shard, Sender send, Reporter report, ShardObserver* observer,
    std::shared_ptr<SharedArena> arena) {
  RUBATO_ASSIGN_OR_RETURN(Optimizer optimizer, Optimizer::Create(ServerOptimizer(job)));
  if (observer != nullptr) {
    send = [send = std::move(send), observer](uint64_t stream, const Frame& frame,
                                              const Payload& payload) {
      observer->OnOutcome(Sent(stream, frame));
      send(stream, frame, payload);
    };
    report = [report = std::move(report), observer](const proto::PeerMessage& message) {
      observer->OnOutcome(Said(message));
      report(message);
    };
  }
  return std::unique_ptr<ShardEngine>(new ShardEngine(job, shard, std::move(optimizer),
                                                      std::move(send), std::move(report), observer,
                                                      std::move(arena)));
}

ShardEngine::ShardEngine(const proto::Job& job, int shard, Optimizer optimizer, Sender send,
                         Reporter report, ShardObserver* observer,
                         std::shared_ptr<SharedArena> arena)
    : job_(job),
      shard_(shard),
      optimizer_(std::move(optimizer)),
      send_(std::move(send)),
      report_(std::move(report)),
      observer_(observer),
      arena_(std::move(arena)),
      threads_(job.cluster().server_threads()) {}

void ShardEngine::OnMessage(const proto::CoordinatorMessage& message) {
  if (observer_ != nullptr) observer_->OnEvent(EventOf(message), {});
  proto::PeerMessage answer;
  ShardActions actions;
  switch (message.kind_case()) {
    case proto::CoordinatorMessage::kView:
      if (const absl::Status status = Open(message.view()); status.ok()) {
        answer.mutable_shard_opened()->set_view(message.view().number());
      } else {
        answer.mutable_failure()->set_exit_code(ExitCode(status));
        answer.mutable_failure()->set_reason(std::string(status.message()));
      }
      report_(answer);
      break;
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
      core_->OnSnapshot(message.snapshot().id(), message.snapshot().step(), &actions);
      break;
    case proto::CoordinatorMessage::kReleaseSnapshot:
      // Older ones, of which only some shards had their part, go as well.
      snapshots_.erase(snapshots_.begin(), snapshots_.upper_bound(message.release_snapshot().id()));
      break;
    case proto::CoordinatorMessage::kVerdict:
      core_->OnVerdict(message.verdict().step(), message.verdict().apply(),
                       message.verdict().factor(), &actions);
      break;
    case proto::CoordinatorMessage::kReportRequest:
      answer.mutable_shard_report();  // nothing before the first view
      if (core_.has_value()) *answer.mutable_shard_report() = ReportMessage(*core_);
      answer.mutable_shard_report()->set_pushed_bytes(pushed_bytes_);
      answer.mutable_shard_report()->set_pulled_bytes(pulled_bytes_);
      report_(answer);
      break;
    default:
      break;  // not for shards
  }
  Run(std::move(actions));
}

absl::Status ShardEngine::Open(const proto::View& view) {
  if (!core_.has_value()) {
    RUBATO_ASSIGN_OR_RETURN(const Placement placement, Placement::Of(job_, view));
    if (shard_ >= placement.shards()) {
      return absl::InvalidArgumentError(absl::StrFormat("view %d has %d shards; this is shard %d",
                                                        view.number(), placement.shards(), shard_));
    }
    RUBATO_ASSIGN_OR_RETURN(
        store_,
        BlockStore::Create(placement, shard_, view.layout(), job_.seed(), optimizer_.slots().size(),
                           job_.cluster().workers().start() > 1, arena_));
    RUBATO_ASSIGN_OR_RETURN(groups_, ParameterGroups::Create(ServerOptimizer(job_), view.layout()));
    learning_rate_.emplace(job_.optimizer(), job_.train().batch_size(), view.samples_per_epoch(),
                           job_.train().until());
    core_.emplace(placement.Blocks(shard_));
    trainable_ = TrainableCount(view.layout());
    squares_.emplace(trainable_);
  }
  ShardActions actions;
  core_->OnView(view, &actions);
  Run(std::move(actions));
  return absl::OkStatus();
}

void ShardEngine::Restore(const proto::Restore& restore) {
  restore_expected_ = static_cast<int64_t>(restore.blocks_size()) * (1 + restore.slots());
  for (const proto::BlockState& block : restore.blocks()) {
    core_->Restore(block.block(), block.version(), block.samples(), block.skipped(),
                   UnitSet(block.units_below(), block.units_above()));
  }
  MaybeReportRestored();
}

void ShardEngine::MaybeReportRestored() {
  if (restored_ || restore_received_ != restore_expected_) return;
  restored_ = true;
  proto::PeerMessage answer;
  answer.mutable_shard_restored();
  report_(answer);
}

absl::Status ShardEngine::OnFrame(uint64_t stream, const Frame& frame,
                                  const ReceivedValues& values) {
  if (observer_ == nullptr) return Handle(stream, frame, values);
  std::vector<float> scratch;
  observer_->OnEvent(EventOf(stream, frame), values.Whole(&scratch));
  absl::Status status = Handle(stream, frame, values);
  if (!status.ok()) observer_->OnOutcome(Refused(status));
  return status;
}

absl::Status ShardEngine::Handle(uint64_t stream, const Frame& frame,
                                 const ReceivedValues& values) {
  if (!core_.has_value()) {
    return absl::FailedPreconditionError("the job has not begun: no view holds yet");
  }
  switch (frame.kind) {
    case FrameKind::kPush:
      return OnPush(frame, values);
    case FrameKind::kPull:
    case FrameKind::kRetire:
      return OnPull(stream, frame);
    case FrameKind::kRestore:
      return OnRestoreFrame(frame, values);
    case FrameKind::kParameters:
      break;
  }
  return absl::InvalidArgumentError("a shard takes pushes and pulls; this frame has parameters");
}

absl::Status ShardEngine::CheckBlock(const Frame& frame, const ReceivedValues& values) const {
  const int64_t block = static_cast<int64_t>(frame.block);
  if (!core_->blocks().Contains(block)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("gradient is for block %d; this shard owns blocks %d to %d", block,
                        core_->blocks().begin, core_->blocks().end));
  }
  if (static_cast<int64_t>(values.size()) != store_->BlockSize(block)) {
    return absl::InvalidArgumentError(absl::StrFormat("gradient has %d values; block %d holds %d",
                                                      values.size(), block,
                                                      store_->BlockSize(block)));
  }
  return absl::OkStatus();
}

absl::Status ShardEngine::OnPush(const Frame& frame, const ReceivedValues& values) {
  RUBATO_RETURN_IF_ERROR(CheckBlock(frame, values));
  pushed_bytes_ += frame.payload_bytes;
  const int64_t block = static_cast<int64_t>(frame.block);
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
  arrived_ = {++last_payload_, block, &values};
  ShardActions actions;
  const absl::Status status = core_->OnPush(block, contribution, arrived_.id, &actions);
  if (status.ok()) {
    Run(std::move(actions));
    KeepArrived();
  }
  arrived_ = {};
  return status;
}

void ShardEngine::KeepArrived() {
  if (arrived_.id == 0) return;
  std::shared_ptr<FloatBuffer> buffer = store_->TakeSpare(arrived_.block);
  arrived_.values->CopyTo(buffer->values());
  arrived_.values->GiveBack();
  held_[arrived_.id] = std::move(buffer);
  arrived_ = {};
}

void ShardEngine::Release(PayloadId id) {
  if (id == arrived_.id) {
    arrived_ = {};
  } else {
    held_.erase(id);
  }
}

absl::Status ShardEngine::OnRestoreFrame(const Frame& frame, const ReceivedValues& values) {
  RUBATO_RETURN_IF_ERROR(CheckBlock(frame, values));
  if (frame.worker != kObserver || restored_ || frame.slot > optimizer_.slots().size()) {
    return absl::InvalidArgumentError("nothing is being restored");
  }
  store_->Restore(static_cast<int64_t>(frame.block), static_cast<int>(frame.slot), values);
  ++restore_received_;
  MaybeReportRestored();
  return absl::OkStatus();
}

absl::Status ShardEngine::OnPull(uint64_t stream, const Frame& frame) {
  if (frame.snapshot != 0) return SendSnapshot(stream, frame);
  const int64_t begin = static_cast<int64_t>(frame.block);
  ShardActions actions;
  struct Pull pull;
  pull.puller = stream;
  pull.worker = frame.worker;
  pull.view = frame.view;
  pull.clock = static_cast<int64_t>(frame.clock);
  pull.number = frame.unit;
  pull.retire = frame.kind == FrameKind::kRetire;
  pull.codec = frame.codec;
  if (pull.codec == Codec::kInt8 || pull.codec == Codec::kTopK) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "pull asks for parameters in %s; expected float32, bf16 or fp16", CodecName(pull.codec)));
  }
  RUBATO_RETURN_IF_ERROR(
      core_->OnPull(pull, {begin, begin + static_cast<int64_t>(frame.block_count)}, &actions));
  Run(std::move(actions));
  return absl::OkStatus();
}

absl::Status ShardEngine::SendSnapshot(uint64_t stream, const Frame& frame) const {
  const auto snapshot = snapshots_.find(frame.snapshot);
  if (snapshot == snapshots_.end()) {
    return absl::NotFoundError(absl::StrFormat("there is no snapshot %d", frame.snapshot));
  }
  for (const auto& [block, copy] : snapshot->second) {
    if (block < static_cast<int64_t>(frame.block) ||
        block >= static_cast<int64_t>(frame.block + frame.block_count)) {
      continue;
    }
    Frame answer;
    answer.kind = FrameKind::kParameters;
    answer.block = static_cast<uint64_t>(block);
    answer.version = static_cast<uint64_t>(copy.state.version());
    answer.snapshot = frame.snapshot;
    send_(stream, answer, Payload{copy.parameters, copy.parameters->values()});
    for (const auto& slot : copy.slots) {
      ++answer.slot;
      send_(stream, answer, Payload{slot, slot->values()});
    }
  }
  return absl::OkStatus();
}

void ShardEngine::OnStreamGone(uint64_t stream) {
  if (observer_ != nullptr) observer_->OnEvent(StreamGone(stream), {});
  if (core_.has_value()) core_->OnPullerGone(stream);
}

// Actions are run here and now, so each change ends before the next event.
void ShardEngine::Run(ShardActions actions) {
  for (size_t i = 0; i < actions.size(); ++i) {
    const ShardAction action = actions[i];  // a copy: more may be appended
    const auto changed = [&](int64_t block) { core_->OnChanged(block, &actions); };
    std::visit(Overloaded{[&](const shard_action::Sum& sum) {
                            Sum(sum);
                            changed(sum.block);
                          },
                          [&](const shard_action::Apply& apply) {
                            Apply(apply);
                            changed(apply.block);
                          },
                          [&](const shard_action::Measure& measure) {
                            Measure(measure);
                            changed(measure.block);
                          },
                          [&](const shard_action::Skip& skip) {
                            Release(skip.payload);
                            changed(skip.block);
                          },
                          [&](const shard_action::Send& send) { SendBlock(send); },
                          [&](const shard_action::Drop& drop) { Release(drop.payload); },
                          [&](const shard_action::Measured& done) { ReportMeasured(done.step); },
                          [&](const shard_action::Copy& copy) { Copy(copy); },
                          [&](const shard_action::Copied& done) { ReportCopied(done.snapshot); },
                          [&](const shard_action::Missed& missed) {
                            proto::PeerMessage answer;
                            answer.mutable_snapshot_missed()->set_id(missed.snapshot);
                            answer.mutable_snapshot_missed()->set_version(missed.version);
                            report_(answer);
                          },
                          [&](const shard_action::Closed&) {
                            proto::PeerMessage answer;
                            *answer.mutable_shard_closed() = ClosedMessage(*core_);
                            report_(answer);
                          }},
               action);
  }
}

// Addition is commutative to the bit, so which of the two came first does not show.
void ShardEngine::Sum(const shard_action::Sum& action) {
  if (arrived_.id == action.payload || arrived_.id == action.other) {
    const PayloadId held = arrived_.id == action.payload ? action.other : action.payload;
    std::shared_ptr<FloatBuffer> sum = std::move(held_.at(held));
    held_.erase(held);
    arrived_.values->AddTo(sum->values());
    arrived_.values->GiveBack();
    arrived_ = {};
    held_[action.payload] = std::move(sum);
    return;
  }
  const absl::Span<float> sum = held_.at(action.payload)->values();
  Add(sum.data(), held_.at(action.other)->values().data(), sum.data(), sum.size());
  held_.erase(action.other);
}

void ShardEngine::Apply(const shard_action::Apply& action) {
  const bool parity = action.on_arrival && job_.optimizer().learning_rate_parity();
  const double share =
      parity ? static_cast<double>(action.samples) / static_cast<double>(job_.train().batch_size())
             : 1.0;
  const auto rate_of = [&](double learning_rate) {
    return static_cast<float>(learning_rate_->At(action.samples_before, learning_rate) * share);
  };
  GroupUpdate update{rate_of};
  update.count = action.updates_before;
  update.share = static_cast<float>(share);
  if (action.samples > 0) {
    const double mean_scale = 1 / static_cast<double>(action.samples);
    update.scale = static_cast<float>(action.factor / static_cast<double>(action.samples));
    update.mean_scale = static_cast<float>(mean_scale);
  } else {  // parts that claim no samples make a step of none: it changes nothing by its sums
    update.scale = update.mean_scale = update.share = 0;
  }
  const int64_t begin = action.block * (job_.wire().chunk() / static_cast<int64_t>(sizeof(float)));
  const absl::Span<const float> current = store_->Current(action.block)->values();
  const absl::Span<const absl::Span<float>> slots = store_->Slots(action.block);
  std::shared_ptr<FloatBuffer> next;
  const auto apply = [&](size_t offset, absl::Span<const float> gradient) {
    absl::InlinedVector<absl::Span<float>, 4> slots_there;
    for (const absl::Span<float> slot : slots) {
      slots_there.push_back(slot.subspan(offset, gradient.size()));
    }
    const int64_t first = begin + static_cast<int64_t>(offset);
    groups_->Apply({first, first + static_cast<int64_t>(gradient.size())}, update,
                   {current.subspan(offset, gradient.size()), gradient, slots_there,
                    next->values().subspan(offset, gradient.size())});
  };
  if (action.payload == arrived_.id && threads_.size() == 1) {
    // In sync the version before may still be asked for.
    next = action.on_arrival ? store_->TakeWritable(action.block) : store_->TakeSpare(action.block);
    arrived_.values->ForEachRun(apply);
    arrived_.values->GiveBack();
    arrived_ = {};
  } else {  // the new version goes over the sum
    KeepArrived();
    next = std::move(held_.at(action.payload));
    held_.erase(action.payload);
    threads_.Run(store_->BlockSize(action.block), [&](Range values) {
      apply(values.begin, next->values().subspan(values.begin, values.size()));
    });
  }
  store_->Publish(action.block, std::move(next));
  if (observer_ != nullptr) {
    observer_->OnOutcome(Updated(action.block, action.version,
                                 store_->Current(action.block)->values(),
                                 store_->Slots(action.block)));
  }
}

void ShardEngine::SendBlock(const shard_action::Send& action) {
  Frame frame;
  frame.kind = FrameKind::kParameters;
  frame.view = core_->view();
  frame.block = static_cast<uint64_t>(action.block);
  frame.clock = static_cast<uint64_t>(action.clock);
  frame.version = static_cast<uint64_t>(action.version);
  frame.unit = action.pull;
  frame.staleness = static_cast<uint32_t>(action.staleness);
  const std::shared_ptr<const FloatBuffer> block =
      action.previous ? store_->Previous(action.block) : store_->Current(action.block);
  const Range values = BlockRange(action.block);
  frame.codec = HoldsStatistics(values, trainable_) ? Codec::kFloat32 : action.codec;
  Payload payload = frame.codec == Codec::kFloat32
                        ? Payload(block, block->values())
                        : coded_.Get(action.block, action.version, frame.codec, block->values());
  // On arrival a version is written over as soon as nobody reads it.
  payload.may_lend = !core_->on_arrival();
  if (action.worker != kObserver) pulled_bytes_ += static_cast<int64_t>(payload.bytes.size());
  send_(action.puller, frame, payload);
}

Range ShardEngine::BlockRange(int64_t block) const {
  const int64_t begin = block * (job_.wire().chunk() / static_cast<int64_t>(sizeof(float)));
  return {begin, begin + store_->BlockSize(block)};
}

void ShardEngine::Measure(const shard_action::Measure& action) {
  if (action.payload == arrived_.id) KeepArrived();
  const absl::Span<const float> values = std::as_const(*held_.at(action.payload)).values();
  const int64_t begin = action.block * job_.wire().chunk() / static_cast<int64_t>(sizeof(float));
  measured_.set_samples(action.samples);
  if (const size_t index = FirstNonFinite(values); index < values.size()) {
    const int64_t at = begin + static_cast<int64_t>(index);
    if (!measured_.has_non_finite() || at < measured_.non_finite()) measured_.set_non_finite(at);
    return;
  }
  // Averages of statistics have no part in the gradient's norm.
  if (begin < trainable_)
    squares_->Add(begin, values.first(std::min<int64_t>(values.size(), trainable_ - begin)));
}

void ShardEngine::ReportMeasured(int64_t step) {
  measured_.set_step(step);
  for (const SumOfSquares::Node& node : squares_->nodes()) {
    proto::ShardMeasured::Node* out = measured_.add_nodes();
    out->set_begin(node.leaves.begin);
    out->set_end(node.leaves.end);
    out->set_sum(node.sum);
  }
  proto::PeerMessage message;
  message.mutable_shard_measured()->Swap(&measured_);
  squares_->Clear();
  report_(message);
}

void ShardEngine::Copy(const shard_action::Copy& action) {
  BlockCopy copy;
  copy.state = BlockStateMessage(*core_, action.block);
  copy.parameters = store_->Current(action.block);
  for (const absl::Span<float> slot : store_->Slots(action.block)) {
    absl::StatusOr<std::shared_ptr<FloatBuffer>> buffer = FloatBuffer::Create(slot.size());
    RUBATO_CHECK(buffer.ok());
    std::copy(slot.begin(), slot.end(), (*buffer)->values().begin());
    copy.slots.push_back(*std::move(buffer));
  }
  snapshots_[action.snapshot][action.block] = std::move(copy);
}

void ShardEngine::ReportCopied(uint32_t snapshot) {
  proto::PeerMessage message;
  message.mutable_snapshot_copied()->set_id(snapshot);
  for (const auto& [block, copy] : snapshots_[snapshot]) {
    *message.mutable_snapshot_copied()->add_blocks() = copy.state;
  }
  report_(message);
}

}  // namespace rubato
