#include "tools/simulator/symbolic_values.h"

#include <cstring>
#include <memory>
#include <utility>

#include "common/base/check.h"

namespace rubato {
namespace {

uint64_t Received(const ReceivedValues& values) {
  std::vector<float> scratch;  // of no use: they lie in one place
  return AsSymbol(values.Whole(&scratch));
}

}  // namespace

std::vector<float> GivenValues(uint64_t seed, int index, const FlatSpace& space) {
  std::vector<float> values(space.values());
  for (int64_t block = 0; block < space.blocks(); ++block) {
    const uint64_t symbol = GivenSymbol(seed, index, block);
    float floats[kFloatsOfSymbol];
    std::memcpy(floats, &symbol, sizeof(symbol));
    const Range range = space.BlockValues(block);
    for (int64_t value = range.begin; value < range.end; ++value) {
      values[value] = floats[(value - range.begin) % kFloatsOfSymbol];
    }
  }
  return values;
}

SymbolicValues::SymbolicValues(const Blocks* blocks, int shard, uint64_t seed, bool measures,
                               uint64_t non_finite_in, Defer defer, Observer* observer)
    : blocks_(blocks),
      seed_(seed),
      measures_(measures),
      non_finite_in_(non_finite_in),
      defer_(std::move(defer)),
      observer_(observer),
      owned_(blocks->placement.Blocks(shard)),
      lost_(InitialSymbol(~seed, -1)),
      previous_(owned_.size()) {
  for (int64_t block = owned_.begin; block < owned_.end; ++block) {
    values_.push_back(InitialSymbol(seed_, block));
  }
}

absl::StatusOr<Range> SymbolicValues::GoOn(const proto::View& view) {
  held_.clear();
  frames_.clear();
  free_ = -1;
  in_use_ = 0;
  arrived_ = 0;
  return Open(view);
}

PayloadId SymbolicValues::Arrive(const Frame& frame, const ReceivedValues& values) {
  int64_t index = free_;
  if (index < 0) {
    index = static_cast<int64_t>(held_.size());
    held_.emplace_back();
    if (observer_ != nullptr) frames_.emplace_back();
  } else {
    free_ = held_[index].next_free;
  }
  held_[index] = {Received(values), kInUse};
  ++in_use_;
  if (observer_ != nullptr) frames_[index] = frame;
  arrived_ = static_cast<PayloadId>(index) + 1;
  arrived_block_ = static_cast<int64_t>(frame.block);
  return arrived_;
}

void SymbolicValues::EndArrival() {
  if (arrived_ != 0) previous(arrived_block_).reset();
  arrived_ = 0;
}

void SymbolicValues::Release(PayloadId payload) {
  Held& held = held_[payload - 1];
  RUBATO_CHECK(held.next_free == kInUse);
  held.next_free = free_;
  free_ = static_cast<int64_t>(payload) - 1;
  --in_use_;
  if (payload == arrived_) arrived_ = 0;
}

void SymbolicValues::Sum(const shard_action::Sum& sum) {
  Held& held = held_[sum.payload - 1];
  held.symbol = SumSymbol(held.symbol, held_[sum.other - 1].symbol);
  Release(sum.other);
}

ShardValues::Block SymbolicValues::Apply(const shard_action::Apply& apply) {
  const uint64_t gradient = held_[apply.payload - 1].symbol;
  const UpdateTerms terms{apply.samples, apply.samples_before, apply.updates_before,
                          apply.rate,    apply.factor,         apply.weight};
  uint64_t& value = mutable_value(apply.block);
  previous(apply.block) = value;
  value = UpdateSymbol(value, gradient, terms);
  if (Observer* const watch = observer()) {
    watch->OnApplied(apply.block, frames_[apply.payload - 1], terms, apply.version, gradient,
                     value);
  }
  Release(apply.payload);
  return {AsFloats(value), {}};
}

void SymbolicValues::Skip(const shard_action::Skip& skip) {
  if (Observer* const watch = observer()) {
    watch->OnSkipped(skip.block, frames_[skip.payload - 1], skip.samples, skip.version);
  }
  previous(skip.block) = value(skip.block);
  Release(skip.payload);
}

std::optional<int64_t> SymbolicValues::Measure(const shard_action::Measure& measure,
                                               SumOfSquares* squares) {
  if (!measures_) return std::nullopt;
  const uint64_t gradient = held_[measure.payload - 1].symbol;
  const Range values = blocks_->placement.space().BlockValues(measure.block);
  if (!IsFinite(gradient, non_finite_in_)) {
    if (Observer* const watch = observer()) watch->OnDiverged(-1);
    return values.begin;
  }
  std::vector<float> floats(values.size());
  floats[0] = NormOf(gradient);
  squares->Add(values.begin, floats);
  return std::nullopt;
}

Payload SymbolicValues::Read(const shard_action::Send& send, Frame*) {
  const uint64_t* symbol = &mutable_value(send.block);
  // A buffer that is gone has no value that anybody could want.
  if (send.previous) symbol = previous(send.block).has_value() ? &*previous(send.block) : &lost_;
  return Payload(nullptr, AsFloats(*symbol));
}

std::vector<Payload> SymbolicValues::Copy(int64_t block) {
  const auto copy = std::make_shared<const uint64_t>(value(block));
  return {Payload(copy, AsFloats(*copy))};
}

void SymbolicValues::Restore(int64_t block, uint32_t, const ReceivedValues& values) {
  mutable_value(block) = Received(values);
}

}  // namespace rubato
