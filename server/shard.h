// The core of a parameter-server shard: decides when payloads are summed, when a block is updated
// and which pulls may be answered. A single-threaded state machine: events in, actions out; no
// clock, socket, thread or float. The shell (server/shard_engine.h) runs the actions; tests and a
// simulator call it directly.
#ifndef RUBATO_SERVER_SHARD_H_
#define RUBATO_SERVER_SHARD_H_

#include <cstdint>
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
    kSum,    // payload += other; `other` is released. Ends with OnChanged(block).
    kApply,  // update the block with `payload`, which is released. Ends with OnChanged(block).
    kSend,   // send the block's parameters to `puller`
    kDrop,   // release `payload`: it was counted before, or belongs to an older view
  };
  Kind kind;
  int64_t block = 0;

  PayloadId payload = 0;  // kSum, kApply, kDrop
  PayloadId other = 0;    // kSum

  int64_t samples = 0;  // kApply: weight of the sum
  int64_t samples_before =
      0;  // kApply: in earlier updates of the block; the learning-rate schedule's argument
  bool on_arrival = false;  // kApply: one contribution, not a whole step

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

  // The outstanding kSum or kApply of `block` is done.
  void OnChanged(int64_t block, ShardActions* actions);

 private:
  struct Pull {
    uint64_t puller;
    uint32_t worker;
    int64_t clock;
  };

  BlockLedger& mutable_ledger(int64_t block) { return ledgers_[block - blocks_.begin]; }
  bool IsMember(uint32_t worker) const { return policy_ && worker < members_.size(); }
  // Starts what may now be done with the block.
  void Advance(int64_t block, ShardActions* actions);
  // Folds two pending siblings of the tree into their parent, if there are any.
  void SumSiblings(int64_t block, ShardActions* actions);
  void Apply(int64_t block, ShardActions* actions);
  void OnApplied(BlockLedger* ledger);
  void Send(int64_t block, const Pull& pull, ShardActions* actions) const;

  Range blocks_;
  std::vector<BlockLedger> ledgers_;
  std::vector<std::vector<Pull>> waiting_;  // by block, in order of arrival
  int64_t duplicates_ = 0;

  // Of the view in force; none before the first.
  uint32_t view_ = 0;
  std::vector<uint32_t> members_;  // incarnation by rank
  std::unique_ptr<ConsistencyPolicy> policy_;
};

}  // namespace rubato

#endif  // RUBATO_SERVER_SHARD_H_
