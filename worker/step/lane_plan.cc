#include "worker/step/lane_plan.h"

#include <algorithm>
#include <utility>

namespace rubato {
namespace {

// Items of `size` leaves, a power of two, cut off where the node ends: nodes of the tree, as the
// node begins where one of that size does.
std::vector<LaneRound> RoundsOf(Range node, int64_t lanes, int64_t size) {
  std::vector<LaneRound> rounds;
  for (int64_t begin = node.begin; begin < node.end; begin += size) {
    if (rounds.empty() || static_cast<int64_t>(rounds.back().items.size()) == lanes) {
      rounds.emplace_back();
    }
    const Range item = {begin, std::min(begin + size, node.end)};
    rounds.back().items.push_back(item);
    rounds.back().turns = std::max(rounds.back().turns, item.size());
  }
  return rounds;
}

int64_t Turns(const std::vector<LaneRound>& rounds) {
  int64_t turns = 0;
  for (const LaneRound& round : rounds) turns += round.turns;
  return turns;
}

int Height(int64_t leaves) {
  int height = 0;
  while ((int64_t{1} << height) < leaves) ++height;
  return height;
}

}  // namespace

std::vector<LaneRound> PlanLanes(Range node, int64_t lanes, int keeps) {
  std::vector<LaneRound> best = RoundsOf(node, lanes, 1);
  for (int height = 1; height <= std::min(keeps, Height(node.size())); ++height) {
    std::vector<LaneRound> rounds = RoundsOf(node, lanes, int64_t{1} << height);
    if (Turns(rounds) <= Turns(best)) best = std::move(rounds);
  }
  return best;
}

int WaitingSums(int64_t leaves, int64_t lanes) {
  int64_t most = 1;
  for (const LaneRound& round : PlanLanes({0, leaves}, lanes, Height(leaves))) {
    most = std::max(most, round.turns);
  }
  return Height(most);
}

SumsOfRound SumRound(const ReductionTree& tree, Range node, const std::vector<Range>& items,
                     std::vector<Range>* waiting) {
  struct Sum {
    Range node;
    int64_t at;  // an item, or ~place
  };
  std::vector<Sum> sums;  // of finished left siblings, outermost first
  for (size_t place = 0; place < waiting->size(); ++place) {
    sums.push_back({(*waiting)[place], ~static_cast<int64_t>(place)});
  }
  SumsOfRound round;
  for (size_t i = 0; i < items.size(); ++i) {
    Sum sum = {items[i], static_cast<int64_t>(i)};
    while (!(sum.node == node) && !sums.empty() && tree.Sibling(sum.node) == sums.back().node) {
      round.additions.push_back({sums.back().at, sum.at});
      sums.pop_back();
      sum.node = tree.Parent(sum.node);
    }
    sums.push_back(sum);
  }
  if (sums.back().node == node) {
    round.whole = sums.back().at;
    sums.pop_back();
  }
  waiting->clear();
  for (const Sum& sum : sums) {
    const auto place = static_cast<int64_t>(waiting->size());
    if (sum.at >= 0) round.waits.push_back({sum.at, place});
    waiting->push_back(sum.node);
  }
  return round;
}

int64_t WaitingPlaces(int64_t leaves, int64_t lanes, int keeps) {
  const ReductionTree tree(leaves);
  size_t most = 0;
  for (int64_t size = 1; size < 2 * leaves; size *= 2) {
    for (int64_t begin = 0; begin < leaves; begin += size) {
      const Range node = {begin, std::min(begin + size, leaves)};
      std::vector<Range> waiting;
      for (const LaneRound& round : PlanLanes(node, lanes, keeps)) {
        SumRound(tree, node, round.items, &waiting);
        most = std::max(most, waiting.size());
      }
    }
  }
  return static_cast<int64_t>(most);
}

}  // namespace rubato
