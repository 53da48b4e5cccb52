#include "server/shard/float_values.h"

#include <algorithm>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "common/base/finite.h"
#include "common/base/kernels.h"
#include "common/base/status.h"
#include "common/job/job.h"
#include "common/space/job_codec.h"
#include "common/space/modes.h"
#include "common/space/placement.h"

namespace rubato {
namespace {

// `batch_size`: samples of a whole batch, over which averages of statistics move once.
GroupUpdate UpdateOf(const shard_action::Apply& apply, int64_t batch_size,
                     absl::FunctionRef<float(double)> rate_of) {
  GroupUpdate update{rate_of};
  update.count = apply.updates_before;
  // Parts that claim no weight, or no samples, change nothing by their sums.
  update.scale =
      apply.weight > 0 ? static_cast<float>(apply.factor / static_cast<double>(apply.weight)) : 0;
  if (apply.samples > 0) {
    update.mean_scale = static_cast<float>(1 / static_cast<double>(apply.samples));
    // Whatever the learning rate makes of a contribution's share of a batch.
    update.share = apply.keeps_previous ? 1
                                        : static_cast<float>(static_cast<double>(apply.samples) /
                                                             static_cast<double>(batch_size));
  } else {
    update.mean_scale = update.share = 0;
  }
  return update;
}

}  // namespace

absl::StatusOr<std::unique_ptr<FloatValues>> FloatValues::Create(const proto::Job& job, int shard,
                                                                 const BlockMemory& memory) {
  RUBATO_ASSIGN_OR_RETURN(Optimizer optimizer, Optimizer::Create(ServerOptimizer(job)));
  return std::unique_ptr<FloatValues>(new FloatValues(job, shard, std::move(optimizer), memory));
}

absl::StatusOr<Placement> FloatValues::PlacementOf(const proto::View& view) const {
  RUBATO_ASSIGN_OR_RETURN(Placement placement, Placement::Of(job_, view));
  if (view.samples_per_epoch() <= 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("view %d has no samples in an epoch", view.number()));
  }
  if (shard_ >= placement.shards()) {
    return absl::InvalidArgumentError(absl::StrFormat("view %d has %d shards; this is shard %d",
                                                      view.number(), placement.shards(), shard_));
  }
  return placement;
}

void FloatValues::UseRate(const proto::View& view) {
  learning_rate_.emplace(WithOptimizerOf(view.layout(), job_).optimizer(),
                         job_.train().batch_size(), view.samples_per_epoch(), job_.train().until());
}

absl::StatusOr<Range> FloatValues::Open(const proto::View& view) {
  RUBATO_ASSIGN_OR_RETURN(const Placement placement, PlacementOf(view));
  const proto::Optimizer settings = ServerOptimizer(WithOptimizerOf(view.layout(), job_));
  RUBATO_ASSIGN_OR_RETURN(optimizer_, Optimizer::Create(settings));
  const bool spares = job_.cluster().workers().start() > 1 || !OnArrival(view.mode());
  RUBATO_ASSIGN_OR_RETURN(store_, BlockStore::Create(placement, shard_, view.layout(), job_.seed(),
                                                     optimizer_.slots().size(), spares, memory_));
  RUBATO_ASSIGN_OR_RETURN(groups_, ParameterGroups::Create(settings, view.layout()));
  UseRate(view);
  trainable_ = TrainableCount(view.layout());
  layout_ = view.layout();
  blocks_ = placement.Blocks(shard_);
  return blocks_;
}

absl::StatusOr<Range> FloatValues::GoOn(const proto::View& view) {
  RUBATO_ASSIGN_OR_RETURN(const Placement placement, PlacementOf(view));
  if (!store_.has_value() || !(placement.Blocks(shard_) == blocks_) ||
      view.layout().SerializeAsString() != layout_.SerializeAsString()) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "view %d is of other blocks than shard %d has kept", view.number(), shard_));
  }
  held_.clear();
  arrived_ = {};
  UseRate(view);
  return blocks_;
}

PayloadId FloatValues::Arrive(const Frame& frame, const ReceivedValues& values) {
  arrived_ = {++last_payload_, static_cast<int64_t>(frame.block), &values};
  return arrived_.id;
}

void FloatValues::EndArrival() {
  if (arrived_.id == 0) return;
  std::shared_ptr<FloatBuffer> buffer = store_->TakeSpare(arrived_.block);
  arrived_.values->CopyTo(buffer->values());
  arrived_.values->GiveBack();
  held_[arrived_.id] = std::move(buffer);
  arrived_ = {};
}

void FloatValues::Release(PayloadId payload) {
  if (payload == arrived_.id) {
    arrived_ = {};
  } else {
    held_.erase(payload);
  }
}

// Addition is commutative to the bit, so which of the two came first does not show.
void FloatValues::Sum(const shard_action::Sum& action) {
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

ShardValues::Block FloatValues::Apply(const shard_action::Apply& action) {
  const int64_t begin = BlockRange(action.block).begin;
  const absl::Span<const float> current = store_->Current(action.block)->values();
  const BlockStore::SlotViews slots = store_->WritableSlots(action.block);
  const auto rate_of = [&](double learning_rate) {
    return static_cast<float>(learning_rate_->At(action.samples_before, learning_rate) *
                              action.rate);
  };
  const GroupUpdate update = UpdateOf(action, job_.train().batch_size(), rate_of);
  std::shared_ptr<FloatBuffer> next;
  const auto apply = [&](size_t offset, absl::Span<const float> gradient) {
    absl::InlinedVector<absl::Span<float>, 4> slots_there;
    absl::InlinedVector<const float*, 4> slots_before;
    for (size_t i = 0; i < slots.to.size(); ++i) {
      slots_there.push_back(slots.to[i].subspan(offset, gradient.size()));
      slots_before.push_back(slots.from[i] == nullptr ? nullptr
                                                      : slots.from[i]->values().data() + offset);
    }
    const int64_t first = begin + static_cast<int64_t>(offset);
    groups_->Apply({first, first + static_cast<int64_t>(gradient.size())}, update,
                   {current.subspan(offset, gradient.size()), gradient, slots_there,
                    next->values().subspan(offset, gradient.size()), slots_before});
  };
  if (action.payload == arrived_.id && threads_.size() == 1) {
    next = action.keeps_previous ? store_->TakeSpare(action.block)
                                 : store_->TakeWritable(action.block);
    arrived_.values->ForEachRun(apply);
    arrived_.values->GiveBack();
    arrived_ = {};
  } else {  // the new version goes over the sum
    EndArrival();
    next = std::move(held_.at(action.payload));
    held_.erase(action.payload);
    threads_.Run(store_->BlockSize(action.block), [&](Range values) {
      apply(values.begin, next->values().subspan(values.begin, values.size()));
    });
  }
  store_->Publish(action.block, std::move(next));
  return {store_->Current(action.block)->values(), slots.to};
}

void FloatValues::Skip(const shard_action::Skip& skip) {
  Release(skip.payload);
  store_->Republish(skip.block);
}

std::optional<int64_t> FloatValues::Measure(const shard_action::Measure& measure,
                                            SumOfSquares* squares) {
  if (measure.payload == arrived_.id) EndArrival();
  const absl::Span<const float> values = std::as_const(*held_.at(measure.payload)).values();
  const int64_t begin = BlockRange(measure.block).begin;
  if (const size_t index = FirstNonFinite(values); index < values.size()) {
    return begin + static_cast<int64_t>(index);
  }
  // Averages of statistics have no part in the gradient's norm.
  if (begin < trainable_) {
    squares->Add(begin, values.first(std::min<int64_t>(values.size(), trainable_ - begin)));
  }
  return std::nullopt;
}

Payload FloatValues::Read(const shard_action::Send& send, Frame* frame) {
  const std::shared_ptr<const FloatBuffer> block =
      send.previous ? store_->Previous(send.block) : store_->Current(send.block);
  const Codec codec =
      HoldsStatistics(BlockRange(send.block), trainable_) ? Codec::kFloat32 : send.codec;
  Payload payload = codec == Codec::kFloat32
                        ? Payload(block, block->values())
                        : coded_.Get(send.block, send.version, codec, block->values());
  *frame = HeaderOf(*frame, payload);
  return payload;
}

std::vector<Payload> FloatValues::Copy(int64_t block) {
  std::vector<Payload> copy;
  for (std::shared_ptr<const FloatBuffer>& kept : store_->Snapshot(block)) {
    const absl::Span<const float> values = kept->values();
    copy.push_back(Payload(std::move(kept), values));
  }
  return copy;
}

void FloatValues::Restore(int64_t block, uint32_t slot, const ReceivedValues& values) {
  store_->Restore(block, static_cast<int>(slot), values);
}

Range FloatValues::BlockRange(int64_t block) const {
  const int64_t begin = block * ValuesPerBlock(job_);
  return {begin, begin + store_->BlockSize(block)};
}

}  // namespace rubato
