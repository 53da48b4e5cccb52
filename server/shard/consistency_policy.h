// The rules of a mode, as questions about a block's ledger. Stateless: all that a mode remembers is
// in the ledger, so that a change of mode moves no state.
#ifndef RUBATO_SERVER_SHARD_CONSISTENCY_POLICY_H_
#define RUBATO_SERVER_SHARD_CONSISTENCY_POLICY_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "common/space/reduction_tree.h"
#include "common/wire/frame.h"
#include "proto/view.pb.h"
#include "server/shard/ledger.h"

namespace rubato {

class ConsistencyPolicy {
 public:
  // Sync: the leaves are the micro-batches of a step. Bounded: see View.staleness.
  ConsistencyPolicy(proto::View::Mode mode, int64_t leaves, int64_t staleness)
      : mode_(mode), tree_(leaves), staleness_(staleness) {}

  // Whether each contribution is an update of its own, when it arrives.
  bool on_arrival() const { return mode_ != proto::View::MODE_SYNC; }
  const ReductionTree& tree() const { return tree_; }

  // Whether the contribution is new (true) or has been counted before (false). InvalidArgument if
  // no honest worker could have sent it.
  absl::StatusOr<bool> Admit(const BlockLedger& ledger, const Contribution& contribution) const;

  // Whether `worker` may now read the block for its clock.
  //   sync:    the block has taken all steps below `clock`
  //   async:   the worker's own contributions below `clock` are in it
  //   bounded: and of everybody who is waited for, those below `clock` - staleness
  bool MayRead(const BlockLedger& ledger, uint32_t worker, int64_t clock) const;
  // Whether all that `worker` itself has sent below `clock` is in the block.
  bool HasOwn(const BlockLedger& ledger, uint32_t worker, int64_t clock) const;

  // Whether there is something that makes an update by itself.
  bool MayApply(const BlockLedger& ledger) const;

 private:
  proto::View::Mode mode_;
  ReductionTree tree_;
  int64_t staleness_;
};

}  // namespace rubato

#endif  // RUBATO_SERVER_SHARD_CONSISTENCY_POLICY_H_
