// The core of a parameter-server shard: decides when payloads are summed, when a block is updated
// and which pulls may be answered. A single-threaded state machine: events in, actions out; no
// clock, socket, thread or float. The protocol (server/shard/shard_protocol.h) runs the actions.
//
// Views change in two beats. From OnClose on, sync applies no step beyond the open one and nobody
// reads what comes of it; on arrival nothing is applied. So the shard's State() tells the
// coordinator all that the next view, which OnView brings, must take into account.
#ifndef RUBATO_SERVER_SHARD_SHARD_H_
#define RUBATO_SERVER_SHARD_SHARD_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <set>
#include <vector>

#include "absl/status/status.h"
#include "common/space/flat_space.h"
#include "proto/view.pb.h"
#include "server/shard/consistency_policy.h"
#include "server/shard/ledger.h"
#include "server/shard/shard_action.h"

namespace rubato {

// A worker's wish for parameters, or an observer's.
struct Pull {
  uint64_t puller = 0;  // the stream that the answer goes to
  uint32_t worker = kObserver;
  uint32_t view = 0;  // a worker's pull counts in its view only
  int64_t clock = 0;
  uint64_t number = 0;            // comes back with the answer
  bool retire = false;            // see FrameKind::kRetire
  Codec codec = Codec::kFloat32;  // that the answer shall be in
};

// What a closed shard tells the coordinator. Of all blocks, of which there is at least one.
struct ShardState {
  int64_t lowest = 0;  // version
  int64_t highest = 0;
  // On arrival, by rank: the least number of a worker's clocks that a block holds.
  std::vector<int64_t> clocks;
  // On arrival: the contributions that all blocks hold, and others that some blocks hold.
  UnitSet whole;
  std::set<int64_t> partial;
};

class Shard {
 public:
  // Owns the blocks in `blocks`, at version 0, and waits for its first view.
  explicit Shard(Range blocks)
      : blocks_(blocks), ledgers_(blocks.size()), waiting_(blocks.size()) {}

  Range blocks() const { return blocks_; }
  const BlockLedger& ledger(int64_t block) const { return ledgers_[block - blocks_.begin]; }
  int64_t duplicates() const { return duplicates_; }
  uint32_t view() const { return view_; }
  bool on_arrival() const { return policy_ != nullptr && policy_->on_arrival(); }
  ShardState State() const;

  // From now on `view` holds, unless it is older than the one that does.
  void OnView(const proto::View& view, ShardActions* actions);
  // `view` is about to be followed by another: see above. Answers with Closed, if it holds, as
  // soon as what is being applied on arrival is done.
  void OnClose(uint32_t view, ShardActions* actions);

  // A payload for `block` has arrived. InvalidArgument, and the payload stays the caller's, if no
  // honest worker could have sent it.
  absl::Status OnPush(int64_t block, const Contribution& contribution, PayloadId payload,
                      ShardActions* actions);

  // Each of `blocks` is sent when it may be read.
  absl::Status OnPull(const Pull& pull, Range blocks, ShardActions* actions);

  // The stream of `puller` is gone: what it waits for is forgotten.
  void OnPullerGone(uint64_t puller);

  // The outstanding change of `block` (shard_action.h) is done.
  void OnChanged(int64_t block, ShardActions* actions);

  // Copies each block into snapshot `id` (above all earlier ones): in sync when it has reached
  // version `step`, on arrival as it is now.
  void OnSnapshot(uint32_t id, int64_t step, ShardActions* actions);
  // The verdict on step `step`: applied with its gradient times `factor`, or left out.
  void OnVerdict(int64_t step, bool apply, double factor, ShardActions* actions);

  // On arrival: this contribution will never come.
  void OnLeftOut(int64_t unit);

  // Before the first contribution: the block continues from a checkpoint.
  void Restore(int64_t block, int64_t version, int64_t samples, int64_t skipped, UnitSet units);

 private:
  struct Early {
    Pull pull;
    Range blocks;
  };

  BlockLedger& mutable_ledger(int64_t block) { return ledgers_[block - blocks_.begin]; }
  bool IsMember(uint32_t worker) const { return worker < members_.size() && members_[worker] != 0; }
  bool IsMember(const Contribution& contribution) const {
    return IsMember(contribution.worker) &&
           members_[contribution.worker] == contribution.incarnation;
  }
  void BeginLineage(int64_t block, const proto::View& view, ShardActions* actions);
  // Starts what may now be done with the block.
  void Advance(int64_t block, ShardActions* actions);
  // Folds two pending siblings of the tree into their parent, if there are any.
  void SumSiblings(int64_t block, ShardActions* actions);
  void Apply(int64_t block, ShardActions* actions);
  void OnApplied(int64_t block);
  void MoveClock(BlockLedger* ledger, uint32_t worker);
  void OnMeasured(int64_t block, ShardActions* actions);
  // Whether a contribution on arrival is being applied.
  bool IsApplying() const;
  // Whether what is ready may change the block now.
  bool MayChange(const BlockLedger& ledger) const;
  bool MayAnswer(const BlockLedger& ledger, const Pull& pull) const;
  // Those who wait and need not any more.
  void AnswerPulls(int64_t block, ShardActions* actions);
  void MaybeCopy(int64_t block, ShardActions* actions);
  void Send(int64_t block, const Pull& pull, ShardActions* actions) const;

  Range blocks_;
  std::vector<BlockLedger> ledgers_;
  std::vector<std::vector<Pull>> waiting_;  // by block, in order of arrival
  std::vector<Early> early_;                // pulls of a view that has not come yet
  int64_t duplicates_ = 0;

  static constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();
  bool closed_ = false;
  bool answers_close_ = false;   // when what is being applied is done
  int64_t limit_ = kNoLimit;     // sync: no block goes beyond this version
  int64_t readable_ = kNoLimit;  // sync: nobody reads beyond this version
  uint32_t snapshot_ = 0;        // the one being taken, or the last one
  int64_t snapshot_step_ = -1;   // sync: the version to copy; below 0: none
  int64_t to_copy_ = 0;          // blocks that are not in it yet

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
  uint32_t lineage_ = 0;
  int64_t from_step_ = 0;
  std::vector<uint32_t> members_;  // incarnation by rank; 0: nobody
  std::unique_ptr<ConsistencyPolicy> policy_;
  bool verdict_steps_ = false;  // sync: a step waits for a verdict over all shards
};

}  // namespace rubato

#endif  // RUBATO_SERVER_SHARD_SHARD_H_
