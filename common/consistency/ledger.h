// What a shard knows about each of its blocks: who contributed what, and which version resulted.
// Holds no floats.
#ifndef RUBATO_COMMON_CONSISTENCY_LEDGER_H_
#define RUBATO_COMMON_CONSISTENCY_LEDGER_H_

#include <cstdint>
#include <deque>
#include <limits>
#include <vector>

#include "absl/container/btree_map.h"
#include "common/consistency/unit_set.h"
#include "common/space/flat_space.h"

namespace rubato {

// The largest staleness that is counted by itself; staler updates count as this.
constexpr int64_t kMostStaleness = 64;

// Names a payload (a gradient sum for one block) that the shell holds.
using PayloadId = uint64_t;

// A part of a step or an update on arrival, for one block.
struct Contribution {
  uint32_t view = 0;
  uint32_t lineage = 0;
  uint32_t worker = 0;
  uint32_t incarnation = 0;
  int64_t clock = 0;         // sync: the step; on arrival: the worker's clock
  int64_t unit = 0;          // which samples: the step, or the number of the contribution
  Range node;                // sync: the leaves whose gradients it sums
  int64_t samples = 0;       // of the sum
  int64_t weight = 0;        // by which it is divided
  int64_t read_version = 0;  // of the block, when the gradient was computed
};

struct BlockLedger {
  // Sync: a sum of leaves of the open step.
  struct Node {
    Range leaves;
    PayloadId payload = 0;
    int64_t samples = 0;
    int64_t weight = 0;
  };
  // On arrival: a contribution that is not in the parameters.
  struct Pending {
    Contribution contribution;
    PayloadId payload;
    // The block already contains these samples (it was restored with them, or a lost worker had
    // sent them): only the worker's clock advances.
    bool counted_before = false;
  };
  // Of one member, on arrival.
  struct Clock {
    int64_t accepted = 0;     // clocks below this one have arrived
    int64_t applied = 0;      // clocks below this one are in the parameters
    int64_t staleness = 0;    // of its last applied contribution
    bool waited_for = false;  // it is a member, and has something left to compute
  };
  static constexpr int64_t kNobody = std::numeric_limits<int64_t>::max();

  int64_t version = 0;  // updates applied
  int64_t samples = 0;  // in those updates
  int64_t skipped = 0;  // of those updates, left out by a decision
  // Sync: disjoint nodes of the open step (which is `version`), by their first leaf; and those that
  // may have a sibling there.
  absl::btree_map<int64_t, Node> nodes;
  std::vector<int64_t> unpaired;
  // Sync: the previous version is still kept. It is dropped at the first contribution to the open
  // step, which proves that all blocks of the job have reached that step.
  bool has_previous = false;
  // On arrival: first in, first out.
  std::deque<Pending> queue;
  std::vector<Clock> clocks;  // by rank
  int64_t slowest = kNobody;  // the least clock that is waited for
  int64_t at_slowest = 0;     // so many workers have it
  // The outstanding action that changes the block.
  enum class Change { kNone, kSum, kMeasure, kApply, kSkip };
  Change change = Change::kNone;
  bool measured = false;  // the open step's sum is whole, and waits for the verdict
  UnitSet units;          // on arrival: the contributions in the parameters
  int64_t staleness_sum = 0;
  int64_t staleness_max = 0;
  std::vector<int64_t> staleness_counts;  // updates, by staleness; as far as there are any

  // The payload of the next update or measurement: the whole sum of the step, or the first in the
  // queue.
  PayloadId next_payload() const {
    return queue.empty() ? nodes.begin()->second.payload : queue.front().payload;
  }
  int64_t next_samples() const {
    return queue.empty() ? nodes.begin()->second.samples : queue.front().contribution.samples;
  }
  int64_t next_weight() const {
    return queue.empty() ? nodes.begin()->second.weight : queue.front().contribution.weight;
  }
  // Whether the outstanding action produces the next version.
  bool is_updating() const { return change == Change::kApply || change == Change::kSkip; }
  // One more of the worker's contributions is in the parameters.
  void MoveClock(uint32_t worker);
  // Call it when the set of clocks that are waited for has changed.
  void FindSlowest();
};

}  // namespace rubato

#endif  // RUBATO_COMMON_CONSISTENCY_LEDGER_H_
