// A thin shell of the shard's core on symbols.
#ifndef RUBATO_TOOLS_SIMULATOR_SYMBOLIC_SHARD_H_
#define RUBATO_TOOLS_SIMULATOR_SYMBOLIC_SHARD_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "common/space/sum_of_squares.h"
#include "server/shard/shard.h"
#include "tools/simulator/blocks.h"
#include "tools/simulator/observer.h"
#include "tools/simulator/shard_model.h"
#include "tools/simulator/symbol.h"

namespace rubato {

class SymbolicShard : public ShardModel {
 public:
  // Asked for each change of a block: true if OnDeferred(block) is called when it is done, else it
  // is done here and now.
  using Defer = std::function<bool(int64_t block)>;

  // `blocks` and `observer` (which may be null) must outlive it. With `measures`, gradients have
  // norms, and with `leaves_out` some are not finite (symbol.h); else a verdict step is applied as
  // it is.
  SymbolicShard(const Blocks* blocks, int shard, uint64_t seed, bool measures, bool leaves_out,
                Sender send, Reporter report, Defer defer, Observer* observer);

  void OnMessage(const proto::CoordinatorMessage& message) override;
  absl::Status OnFrame(uint64_t stream, const Frame& frame, Content content) override;
  void OnStreamGone(uint64_t stream) override { core_.OnPullerGone(stream); }
  void OnDeferred(int64_t block) override;

  const Shard& core() const { return core_; }
  uint64_t value(int64_t block) const { return values_[block - core_.blocks().begin]; }
  // What the snapshot holds of the block.
  uint64_t copy(uint32_t snapshot, int64_t block) const {
    return snapshots_.at(snapshot).at(block).value;
  }

 private:
  static constexpr int64_t kInUse = -2;
  struct Held {
    uint64_t symbol = 0;
    int64_t next_free = kInUse;
  };

  PayloadId Keep(uint64_t symbol, const Frame& frame);
  void Release(PayloadId id);
  void Run(ShardActions* actions);
  // Does what changes a block, and tells the core.
  void Change(const ShardAction& action, ShardActions* actions);
  void Measure(const shard_action::Measure& action);
  void SendBlock(const shard_action::Send& action);
  void ReportMeasured(int64_t step);
  void Answer(const proto::PeerMessage& message) { report_(message); }
  uint64_t& mutable_value(int64_t block) { return values_[block - core_.blocks().begin]; }

  const Blocks* const blocks_;
  const uint64_t seed_;
  const bool measures_;
  const bool leaves_out_;
  const Sender send_;
  const Reporter report_;
  const Defer defer_;
  Observer* const observer_;

  Shard core_;
  std::vector<uint64_t> values_;  // by block
  // By block: the version before; none once the next step's sum has taken its buffer.
  std::vector<std::optional<uint64_t>> previous_;
  std::vector<std::optional<ShardAction>> deferred_;  // by block
  std::vector<Held> held_;                            // by payload
  std::vector<Frame> frames_;  // by payload, that it or a part of it came in: for the observer
  int64_t free_ = -1;          // the first free one of held_
  ShardActions spare_;         // of the next event: no allocation for each
  // Of the step that is being measured.
  proto::ShardMeasured measured_;
  SumOfSquares squares_;
  struct Copy {
    proto::BlockState state;
    uint64_t value = 0;
  };
  std::map<uint32_t, std::map<int64_t, Copy>> snapshots_;  // by block
};

}  // namespace rubato

#endif  // RUBATO_TOOLS_SIMULATOR_SYMBOLIC_SHARD_H_
