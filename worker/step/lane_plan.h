// Which lane of a worker (a thread, a GPU) computes which micro-batches of a node of the tree, and
// in what order.
#ifndef RUBATO_WORKER_STEP_LANE_PLAN_H_
#define RUBATO_WORKER_STEP_LANE_PLAN_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "common/space/flat_space.h"
#include "common/space/reduction_tree.h"

namespace rubato {

// What the lanes do side by side.
struct LaneRound {
  std::vector<Range> items;  // by lane: nodes whose sums they make, of neighbours in order
  int64_t turns = 1;         // of a micro-batch for each lane: leaves of the largest item

  // The micro-batch of a lane's item in a turn. A smaller item begins later, so that all sums are
  // whole in the last turn.
  std::optional<int64_t> Leaf(size_t lane, int64_t turn) const {
    const int64_t leaf = items[lane].end - turns + turn;
    return leaf < items[lane].begin ? std::nullopt : std::optional<int64_t>(leaf);
  }
};

// The rounds whose items are `node`, in order. A lane adds up at most 2^keeps micro-batches: as
// many as let the lanes be done in the fewest turns, and so that the fewest sums are left to be
// added.
std::vector<LaneRound> PlanLanes(Range node, int64_t lanes, int keeps);

// Gradients that each of `lanes` has to keep at a time to add up what PlanLanes would give it of
// all `leaves`.
int WaitingSums(int64_t leaves, int64_t lanes = 1);

// What becomes of the sums of a round's items, whoever holds and adds them.
struct SumsOfRound {
  // To an item's sum is added: another's, or what waits at place ~from, if `from` is below 0.
  struct Addition {
    int64_t from, to;
  };
  // An item's sum, with what was added, waits at a place for its right sibling.
  struct Wait {
    int64_t item, place;
  };
  std::vector<Addition> additions;  // in their order
  std::vector<Wait> waits;          // after them, in places that nothing waits at any more
  int64_t whole = -1;               // the item that has the node's sum then, in the last round
};

// `waiting`: of the node's earlier rounds, the nodes whose sums wait, by place; then, with this
// one.
SumsOfRound SumRound(const ReductionTree& tree, Range node, const std::vector<Range>& items,
                     std::vector<Range>* waiting);

// The most places at which sums wait between rounds, of any node of the tree over `leaves`.
int64_t WaitingPlaces(int64_t leaves, int64_t lanes, int keeps);

}  // namespace rubato

#endif  // RUBATO_WORKER_STEP_LANE_PLAN_H_
