// The core of a parameter-server shard: decides when payloads are summed, when a block is updated
// and which pulls may be answered. A single-threaded state machine: events in, actions out; no
// clock, socket, thread or float. The shell (server/shard_engine.h) runs the actions; tests and a
// simulator call it directly.
#ifndef RUBATO_SERVER_SHARD_H_
#define RUBATO_SERVER_SHARD_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "common/flat_space.h"
#include "proto/view.pb.h"
#include "server/consistency_policy.h"
#include "server/ledger.h"

namespace rubato {

struct ShardAction {
  enum class Kind {
    kSum,       // payload += other; `other` is released. Ends with OnChanged(block).
    kApply,     // update the block with `payload`, which is released. Ends with OnChanged(block).
    kSend,      // send the block's parameters to `puller`
    kDrop,      // release `payload`: it was counted before, or belongs to an older view
    kMeasure,   // the sum of squares of `payload`, and whether it is finite. Ends with
                // OnChanged(block).
    kMeasured,  // all blocks' sums of step `version` - 1 are whole and measured: ask for the
                // verdict
    kSkip,      // release `payload`: the verdict leaves the step out
    kCopy,      // put the block, as it is, into snapshot `snapshot`
    kCopied,    // all blocks are in snapshot `snapshot`
    kMissed,    // snapshot `snapshot` cannot be taken: a block is at `version`, beyond its step
    kHeld,      // the shard stands still; `version` is the highest version of its blocks
  };
  Kind kind;
  int64_t block = 0;

  PayloadId payload = 0;  // kSum, kApply, kDrop
  PayloadId other = 0;    // kSum

  // kApply:
  int64_t samples = 0;         // weight of the sum
  int64_t samples_before = 0;  // in earlier updates of the block: the schedule's argument
  int64_t updates_before = 0;  // that the optimizer has made of the block
  bool on_arrival = false;     // one contribution, not a whole step
  double factor = 1;           // of the gradient, by the verdict

  uint32_t snapshot = 0;  // kCopy, kCopied, kMissed

  uint64_t puller = 0;    // kSend
  int64_t clock = 0;      // kSend: as asked
  int64_t version = 0;    // kSend: of the parameters; kApply: the version that it makes
  int64_t staleness = 0;  // kSend: of the worker's last contribution to the block
};

// Of the actions that change a block at most one is outstanding.
using ShardActions = std::vector<ShardAction>;

class Shard {
 public:
  // Owns the blocks in `blocks`, at version 0, and waits for its first view.
  explicit Shard(Range blocks)
      : blocks_(blocks), ledgers_(blocks.size()), waiting_(blocks.size()) {}

  Range blocks() const { return blocks_; }
  const BlockLedger& ledger(int64_t block) const { return ledgers_[block - blocks_.begin]; }
  int64_t duplicates() const { return duplicates_; }

  // From now on `view` holds.
  void OnView(const proto::View& view, ShardActions* actions);

  // A payload for `block` has arrived. InvalidArgument, and the payload stays the caller's, if no
  // honest worker could have sent it.
  absl::Status OnPush(int64_t block, const Contribution& contribution, PayloadId payload,
                      ShardActions* actions);

  // `puller` wants `blocks` for `worker`'s clock (`kObserver` for none). Each is sent when it may
  // be read.
  absl::Status OnPull(uint64_t puller, uint32_t worker, Range blocks, int64_t clock,
                      ShardActions* actions);

  // The stream of `puller` is gone: what it waits for is forgotten.
  void OnPullerGone(uint64_t puller);

  // The outstanding kSum, kMeasure or kApply of `block` is done.
  void OnChanged(int64_t block, ShardActions* actions);

  // Stands still: sync applies no step beyond its open one, on arrival nothing is applied; answers
  // with kHeld.
  void OnHold(ShardActions* actions);
  // Goes on, and copies each block into snapshot `id` (above all earlier ones): in sync when it has
  // reached version `step`, on arrival as it is now. With `end`, applies nothing beyond that.
  void OnSnapshot(uint32_t id, int64_t step, bool end, ShardActions* actions);
  // The verdict on step `step`: applied with its gradient times `factor`, or left out.
  void OnVerdict(int64_t step, bool apply, double factor, ShardActions* actions);

  // Before the first contribution: the block continues from a checkpoint.
  void Restore(int64_t block, int64_t version, int64_t samples, int64_t skipped, UnitSet units);

 private:
  struct Pull {
    uint64_t puller;
    uint32_t worker;
    int64_t clock;
  };

  BlockLedger& mutable_ledger(int64_t block) { return ledgers_[block - blocks_.begin]; }
  bool IsMember(uint32_t worker) const { return policy_ && worker < members_.size(); }
  static void Drop(int64_t block, PayloadId payload, ShardActions* actions);
  // Starts what may now be done with the block.
  void Advance(int64_t block, ShardActions* actions);
  // Folds two pending siblings of the tree into their parent, if there are any.
  void SumSiblings(int64_t block, ShardActions* actions);
  void Apply(int64_t block, ShardActions* actions);
  void OnApplied(BlockLedger* ledger);
  void OnMeasured(int64_t block, ShardActions* actions);
  // Whether the first pending contribution may change the block now.
  bool MayChange(const BlockLedger& ledger) const;
  void MaybeCopy(int64_t block, ShardActions* actions);
  void Send(int64_t block, const Pull& pull, ShardActions* actions) const;

  Range blocks_;
  std::vector<BlockLedger> ledgers_;
  std::vector<std::vector<Pull>> waiting_;  // by block, in order of arrival
  int64_t duplicates_ = 0;

  static constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();
  bool held_ = false;           // on arrival: nothing is applied
  int64_t limit_ = kNoLimit;    // sync: no block goes beyond this version
  uint32_t snapshot_ = 0;       // the one being taken, or the last one
  int64_t snapshot_step_ = -1;  // sync: the version to copy; below 0: none
  int64_t to_copy_ = 0;         // blocks that are not in it yet

  // Verdict steps.
  int64_t measured_ = 0;  // blocks of the step at hand that have been measured
  struct Verdict {
    int64_t step = -1;
    bool apply = true;
    double factor = 1;
  };
  Verdict verdict_;  // the last one

  // Of the view in force; none before the first.
  uint32_t view_ = 0;
  std::vector<uint32_t> members_;  // incarnation by rank
  std::unique_ptr<ConsistencyPolicy> policy_;
  bool verdict_steps_ = false;  // sync: a step waits for a verdict over all shards
};

}  // namespace rubato

#endif  // RUBATO_SERVER_SHARD_H_
