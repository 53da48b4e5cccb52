// The core of a parameter-server shard: decides when payloads are summed, when a block is updated
// and which pulls may be answered. A single-threaded state machine: events in, actions out; no
// clock, socket, thread or float. The protocol (server/shard/shard_protocol.h) runs the actions.
//
// Views change in two phases. From OnClose on, sync applies no step beyond the open one, and nobody
// reads the result of that one; on arrival nothing is applied. So the shard's State() tells the
// coordinator all that the next view, which OnView brings, must take into account.
#ifndef RUBATO_SERVER_SHARD_SHARD_H_
#define RUBATO_SERVER_SHARD_SHARD_H_

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/consistency/ledger.h"
#include "common/consistency/policy.h"
#include "common/space/flat_space.h"
#include "proto/view.pb.h"
#include "server/rules/allowed.h"
#include "server/shard/grants.h"
#include "server/shard/shard_action.h"
#include "server/shard/shard_state.h"
#include "server/shard/snapshot_progress.h"
#include "server/shard/waiting_pulls.h"

namespace rubato {

class Shard {
 public:
  // Owns the blocks in `blocks`, at version 0, and waits for its first view.
  explicit Shard(Range blocks, PolicyFactory policies = BuiltInPolicy)
      : blocks_(blocks),
        policies_(std::move(policies)),
        ledgers_(blocks.size()),
        waiting_(blocks),
        snapshot_(blocks) {}

  Range blocks() const { return blocks_; }
  const BlockLedger& ledger(int64_t block) const { return ledgers_[block - blocks_.begin]; }
  int64_t duplicates() const { return duplicates_; }
  uint32_t view() const { return view_; }
  // Of the member of this rank; 0: there is none.
  uint32_t Incarnation(uint32_t worker) const {
    return worker < members_.size() ? members_[worker] : 0;
  }
  // From the first view on.
  const Policy& policy() const { return *policy_; }
  // The coordinator's decisions on units that some block was not done with when the last one
  // arrived, and on the unit before.
  const std::map<Subject, proto::Decision>& decisions() const { return terms_.decisions; }
  // The first unit whose decisions are kept, beyond the view too: other shards may be an update
  // behind, and the next term asks those that know.
  int64_t FirstKept() const { return FirstOpen() - 1; }
  ShardState State() const { return StateOf(ledgers_, members_.size()); }

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
  void OnPullerGone(uint64_t puller) { waiting_.ForgetPuller(puller); }

  // The outstanding change of `block` (shard_action.h) is done.
  void OnChanged(int64_t block, ShardActions* actions);

  // Copies each block into snapshot `id` (above all earlier ones): in sync when it has reached
  // version `step`, on arrival as it is now.
  void OnSnapshot(uint32_t id, int64_t step, ShardActions* actions);
  // The coordinator's, on what a shard has asked.
  void OnDecision(const proto::Decision& decision, ShardActions* actions);

  // On arrival: this contribution will never come.
  void OnLeftOut(int64_t unit);

  // Before the first contribution: the block continues from a checkpoint.
  void Restore(int64_t block, int64_t version, int64_t samples, int64_t skipped, UnitSet units);
  // In sync, after that: the version before is still there.
  void RestorePrevious(int64_t block) { mutable_ledger(block).has_previous = true; }

 private:
  BlockLedger& mutable_ledger(int64_t block) { return ledgers_[block - blocks_.begin]; }
  bool IsMember(uint32_t worker) const { return Incarnation(worker) != 0; }
  bool IsMember(const Contribution& contribution) const {
    return IsMember(contribution.worker) &&
           members_[contribution.worker] == contribution.incarnation;
  }
  // The first unit that some block is not done with; kNoLimit if there is no block.
  int64_t FirstOpen() const;
  // The kind of sender that this contribution comes from (server/rules/allowed.h).
  Sender SenderOf(const Contribution& contribution) const;
  Sender SenderOf(const Pull& pull) const;
  // Whether it can be of the view and lineage that it names.
  absl::Status CheckOrigin(const Contribution& contribution) const;
  void BeginLineage(int64_t block, const proto::View& view, ShardActions* actions);
  // Starts what may now be done with the block.
  void Advance(int64_t block, ShardActions* actions);
  // Folds the second of the change's nodes into the first.
  void Sum(int64_t block, const NextChange& change, ShardActions* actions);
  // What is whole is measured, applied or left out.
  void Apply(int64_t block, const NextChange& change, ShardActions* actions);
  void Drop(int64_t block, int64_t leaf, ShardActions* actions);
  // For all blocks. Whether the view has not asked on the unit before.
  bool Ask(int64_t block, int64_t unit, ShardActions* actions);
  void OnUpdated(int64_t block, bool is_skipped);
  void OnMeasured(int64_t block, ShardActions* actions);
  // Whether what is being applied has to be done before the view is closed.
  bool IsApplying() const;
  bool MayAnswer(const BlockLedger& ledger, const Pull& pull) const;
  // Those who wait and need not any more.
  void AnswerPulls(int64_t block, ShardActions* actions);
  void MaybeCopy(int64_t block, ShardActions* actions);
  void Send(int64_t block, const Pull& pull, ShardActions* actions) const;

  Range blocks_;
  PolicyFactory policies_;
  std::vector<BlockLedger> ledgers_;
  WaitingPulls waiting_;
  SnapshotProgress snapshot_;
  int64_t duplicates_ = 0;

  ShardTerms terms_;
  bool answers_close_ = false;  // when what is being applied is done

  int64_t measured_ = 0;  // blocks of the step at hand that have been measured

  // Of the view in force; none before the first.
  uint32_t view_ = 0;
  uint32_t lineage_ = 0;
  int64_t origin_ = 0;  // of the lineage: its first unit,
  int64_t until_ = 0;   // and the first that is not its
  Grants grants_;
  std::vector<uint32_t> members_;  // incarnation by rank; 0: nobody
  std::unique_ptr<const Policy> policy_;
};

}  // namespace rubato

#endif  // RUBATO_SERVER_SHARD_SHARD_H_
