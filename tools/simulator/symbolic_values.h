// The values of a shard as symbols (symbol.h). A symbol takes the place of a block's floats as two
// of them, so that it travels as they do.
#ifndef RUBATO_TOOLS_SIMULATOR_SYMBOLIC_VALUES_H_
#define RUBATO_TOOLS_SIMULATOR_SYMBOLIC_VALUES_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "common/space/flat_space.h"
#include "server/shard/shard_values.h"
#include "tools/simulator/blocks.h"
#include "tools/simulator/observer.h"
#include "tools/simulator/symbol.h"

namespace rubato {

constexpr size_t kFloatsOfSymbol = sizeof(uint64_t) / sizeof(float);

inline absl::Span<const float> AsFloats(const uint64_t& symbol) {
  return {reinterpret_cast<const float*>(&symbol), kFloatsOfSymbol};
}
inline uint64_t AsSymbol(absl::Span<const float> floats) {
  uint64_t symbol;
  std::memcpy(&symbol, floats.data(), sizeof(symbol));
  return symbol;
}

// All values that worker `index` would give a job of a script: each block has its symbol over and
// over, so that not even a part of a block passes for another worker's.
std::vector<float> GivenValues(uint64_t seed, int index, const FlatSpace& space);

class SymbolicValues : public ShardValues {
 public:
  // Asked for each change of a block: whether shard_event::ChangeDue will follow.
  using Defer = std::function<bool(int64_t block)>;

  // `blocks` and `observer` (which may be null) must outlive it; without `defer` changes take no
  // time. With `measures`, gradients have norms, and one of `non_finite_in` is not finite
  // (symbol.h; 0: none); else a verdict step is applied as it is.
  SymbolicValues(const Blocks* blocks, int shard, uint64_t seed, bool measures,
                 uint64_t non_finite_in, Defer defer, Observer* observer);

  uint64_t value(int64_t block) const { return values_[block - owned_.begin]; }
  // Payloads that wait for others.
  int64_t held() const { return in_use_; }

  absl::StatusOr<Range> Open(const proto::View& view) override {
    term_ = view.term();
    return owned_;
  }
  absl::StatusOr<Range> GoOn(const proto::View& view) override;
  size_t BlockSize(int64_t) const override { return kFloatsOfSymbol; }
  size_t slots() const override { return 0; }

  PayloadId Arrive(const Frame& frame, const ReceivedValues& values) override;
  void EndArrival() override;
  void Release(PayloadId payload) override;

  bool TakesTime(int64_t block) override { return defer_ && defer_(block); }
  void Sum(const shard_action::Sum& sum) override;
  Block Apply(const shard_action::Apply& apply) override;
  void Skip(const shard_action::Skip& skip) override;
  std::optional<int64_t> Measure(const shard_action::Measure& measure,
                                 SumOfSquares* squares) override;

  Payload Read(const shard_action::Send& send, Frame* frame) override;
  std::vector<Payload> Copy(int64_t block) override;
  void Restore(int64_t block, uint32_t slot, const ReceivedValues& values) override;

 private:
  static constexpr int64_t kInUse = -2;
  struct Held {
    uint64_t symbol = 0;
    int64_t next_free = kInUse;
  };

  uint64_t& mutable_value(int64_t block) { return values_[block - owned_.begin]; }
  std::optional<uint64_t>& previous(int64_t block) { return previous_[block - owned_.begin]; }

  const Blocks* const blocks_;
  const uint64_t seed_;
  const bool measures_;
  const uint64_t non_finite_in_;
  const Defer defer_;
  Observer* observer() const { return observer_ == nullptr ? nullptr : observer_->OfTerm(term_); }

  Observer* const observer_;
  uint32_t term_ = 0;
  const Range owned_;
  const uint64_t lost_;  // in the place of a value that is not there any more

  std::vector<uint64_t> values_;  // by block
  // By block: the version before; none once the next step's sum has taken its buffer.
  std::vector<std::optional<uint64_t>> previous_;
  std::vector<Held> held_;     // by payload
  std::vector<Frame> frames_;  // by payload, that it or a part of it came in: for the observer
  int64_t free_ = -1;          // the first free one of held_
  int64_t in_use_ = 0;         // so many of them
  PayloadId arrived_ = 0;      // 0: none
  int64_t arrived_block_ = 0;
};

}  // namespace rubato

#endif  // RUBATO_TOOLS_SIMULATOR_SYMBOLIC_VALUES_H_
