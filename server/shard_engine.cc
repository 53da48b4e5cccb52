#include "server/shard_engine.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "common/check.h"
#include "common/kernels.h"
#include "common/status.h"

namespace rubato {

absl::StatusOr<std::unique_ptr<ShardEngine>> ShardEngine::Create(const proto::Job& job, int shard,
                                                                 Sender send) {
  RUBATO_ASSIGN_OR_RETURN(Optimizer optimizer, Optimizer::Create(job.optimizer()));
  return std::unique_ptr<ShardEngine>(
      new ShardEngine(job, shard, std::move(optimizer), std::move(send)));
}

ShardEngine::ShardEngine(const proto::Job& job, int shard, Optimizer optimizer, Sender send)
    : job_(job), shard_(shard), optimizer_(std::move(optimizer)), send_(std::move(send)) {}

absl::Status ShardEngine::Open(const proto::View& view) {
  if (!core_.has_value()) {
    const FlatSpace space(ValueCount(view.layout()), job_.wire().chunk() / sizeof(float),
                          job_.cluster().servers());
    RUBATO_ASSIGN_OR_RETURN(store_, BlockStore::Create(space, shard_, view.layout(), job_.seed(),
                                                       optimizer_.slots().size()));
    RUBATO_ASSIGN_OR_RETURN(groups_, ParameterGroups::Create(job_.optimizer(), view.layout()));
    learning_rate_.emplace(job_.optimizer(), job_.train().batch_size(), view.samples_per_epoch(),
                           job_.train().until());
    core_.emplace(space.ShardBlocks(shard_));
  }
  view_ = view.number();
  ShardActions actions;
  core_->OnView(view, &actions);
  Run(std::move(actions));
  return absl::OkStatus();
}

absl::Status ShardEngine::OnFrame(uint64_t stream, const Frame& frame, Payload payload) {
  if (!core_.has_value()) {
    return absl::FailedPreconditionError("the job has not begun: no view holds yet");
  }
  switch (frame.kind) {
    case FrameKind::kPush:
      return OnPush(frame, std::move(payload));
    case FrameKind::kPull: {
      const int64_t begin = static_cast<int64_t>(frame.block);
      if (!core_->blocks().Contains(begin)) {
        return absl::InvalidArgumentError(
            absl::StrFormat("pull begins at block %d; this shard owns blocks %d to %d", begin,
                            core_->blocks().begin, core_->blocks().end));
      }
      ShardActions actions;
      RUBATO_RETURN_IF_ERROR(core_->OnPull(stream, frame.worker,
                                           {begin, begin + static_cast<int64_t>(frame.block_count)},
                                           static_cast<int64_t>(frame.clock), &actions));
      Run(std::move(actions));
      return absl::OkStatus();
    }
    case FrameKind::kParameters:
      break;
  }
  return absl::InvalidArgumentError("a shard takes pushes and pulls; this frame has parameters");
}

absl::Status ShardEngine::OnPush(const Frame& frame, Payload payload) {
  const int64_t block = static_cast<int64_t>(frame.block);
  if (!core_->blocks().Contains(block)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("gradient is for block %d; this shard owns blocks %d to %d", block,
                        core_->blocks().begin, core_->blocks().end));
  }
  if (static_cast<int64_t>(payload.values.size()) != store_->BlockSize(block)) {
    return absl::InvalidArgumentError(absl::StrFormat("gradient has %d values; block %d holds %d",
                                                      payload.values.size(), block,
                                                      store_->BlockSize(block)));
  }
  Contribution contribution;
  contribution.view = frame.view;
  contribution.worker = frame.worker;
  contribution.incarnation = frame.incarnation;
  contribution.clock = static_cast<int64_t>(frame.clock);
  contribution.node = frame.node();
  contribution.samples = frame.samples;
  contribution.read_version = static_cast<int64_t>(frame.version);
  const PayloadId id = ++last_payload_;
  held_[id] = {std::move(payload), nullptr};
  ShardActions actions;
  if (absl::Status status = core_->OnPush(block, contribution, id, &actions); !status.ok()) {
    held_.erase(id);
    return status;
  }
  Run(std::move(actions));
  return absl::OkStatus();
}

void ShardEngine::OnStreamGone(uint64_t stream) {
  if (core_.has_value()) core_->OnPullerGone(stream);
}

// Actions are run here and now, so each change ends before the next event.
void ShardEngine::Run(ShardActions actions) {
  for (size_t i = 0; i < actions.size(); ++i) {
    const ShardAction action = actions[i];  // a copy: more may be appended
    switch (action.kind) {
      case ShardAction::Kind::kSum:
        Sum(action);
        core_->OnChanged(action.block, &actions);
        break;
      case ShardAction::Kind::kApply:
        Apply(action);
        core_->OnChanged(action.block, &actions);
        break;
      case ShardAction::Kind::kSend:
        SendBlock(action);
        break;
      case ShardAction::Kind::kDrop:
        held_.erase(action.payload);
        break;
    }
  }
}

void ShardEngine::Sum(const ShardAction& action) {
  Held left = std::move(held_.at(action.payload));
  Held right = std::move(held_.at(action.other));
  held_.erase(action.other);
  std::shared_ptr<FloatBuffer> sum = left.buffer    ? left.buffer
                                     : right.buffer ? right.buffer
                                                    : store_->TakeSpare(action.block);
  // Addition is commutative to the bit, so which of the two came first does not show.
  Add(left.payload.values.data(), right.payload.values.data(), sum->values().data(),
      sum->values().size());
  held_[action.payload] = {Payload{sum, sum->values()}, sum};
}

void ShardEngine::Apply(const ShardAction& action) {
  Held gradient = std::move(held_.at(action.payload));
  held_.erase(action.payload);
  // Parts that claim no samples make a step of none: it changes nothing by its gradient.
  const float scale =
      action.samples > 0 ? static_cast<float>(1.0 / static_cast<double>(action.samples)) : 0.0f;
  const auto rate_of = [&](double learning_rate) {
    double rate = learning_rate_->At(action.samples_before, learning_rate);
    if (action.on_arrival && job_.optimizer().learning_rate_parity()) {
      rate *= static_cast<double>(action.samples) / static_cast<double>(job_.train().batch_size());
    }
    return static_cast<float>(rate);
  };
  // The new version goes over the sum, or into the spare buffer if the gradient is as received.
  std::shared_ptr<FloatBuffer> next =
      gradient.buffer != nullptr ? gradient.buffer : store_->TakeSpare(action.block);
  const int64_t begin = action.block * (job_.wire().chunk() / static_cast<int64_t>(sizeof(float)));
  groups_->Apply({begin, begin + store_->BlockSize(action.block)}, rate_of, scale,
                 action.version - 1,
                 {store_->Current(action.block)->values(), gradient.payload.values,
                  store_->Slots(action.block), next->values()});
  store_->Publish(action.block, std::move(next));
}

void ShardEngine::SendBlock(const ShardAction& action) {
  Frame frame;
  frame.kind = FrameKind::kParameters;
  frame.view = view_;
  frame.block = static_cast<uint64_t>(action.block);
  frame.clock = static_cast<uint64_t>(action.clock);
  frame.version = static_cast<uint64_t>(action.version);
  frame.staleness = static_cast<uint32_t>(action.staleness);
  const std::shared_ptr<const FloatBuffer> block = store_->Current(action.block);
  send_(action.puller, frame, Payload{block, block->values()});
}

proto::ShardReport ShardEngine::Report() const {
  proto::ShardReport report;
  if (!core_.has_value()) return report;
  for (int64_t block = core_->blocks().begin; block < core_->blocks().end; ++block) {
    const BlockLedger& ledger = core_->ledger(block);
    proto::ShardReport::Block* out = report.add_blocks();
    out->set_block(block);
    out->set_version(ledger.version);
    out->set_samples(ledger.samples);
    out->set_staleness_sum(ledger.staleness_sum);
    out->set_staleness_max(ledger.staleness_max);
  }
  report.set_duplicates(core_->duplicates());
  return report;
}

}  // namespace rubato
