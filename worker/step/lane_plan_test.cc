#include "worker/step/lane_plan.h"

#include <utility>
#include <vector>

#include "common/space/reduction_tree.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

// By round and lane, first and last leaf.
using Items = std::vector<std::vector<std::pair<int64_t, int64_t>>>;

Items ItemsOf(Range node, int64_t lanes, int keeps) {
  Items items;
  for (const LaneRound& round : PlanLanes(node, lanes, keeps)) {
    items.emplace_back();
    for (const Range& item : round.items) items.back().emplace_back(item.begin, item.end - 1);
  }
  return items;
}

TEST(PlanLanes, EachLeafIsComputedOnceInNodesOfTheTree) {
  for (int64_t leaves = 1; leaves <= 20; ++leaves) {
    const ReductionTree tree(leaves);
    for (int64_t begin = 0; begin < leaves; ++begin) {
      for (const Range& node : tree.MaximalNodes({begin, leaves})) {
        for (int64_t lanes = 1; lanes <= 9; ++lanes) {
          for (int keeps = 0; keeps <= 5; ++keeps) {
            int64_t next = node.begin;
            for (const LaneRound& round : PlanLanes(node, lanes, keeps)) {
              ASSERT_LE(round.items.size(), static_cast<size_t>(lanes));
              ASSERT_LE(round.turns, int64_t{1} << keeps);
              for (size_t i = 0; i < round.items.size(); ++i) {
                ASSERT_TRUE(tree.IsNode(round.items[i]));
                for (int64_t turn = 0; turn < round.turns; ++turn) {
                  const std::optional<int64_t> leaf = round.Leaf(i, turn);
                  ASSERT_EQ(leaf.value_or(next), next);
                  next += leaf.has_value();
                }
                ASSERT_TRUE(round.Leaf(i, round.turns - 1).has_value()) << "all end together";
                ASSERT_EQ(next, round.items[i].end);
              }
            }
            ASSERT_EQ(next, node.end);
          }
        }
      }
    }
  }
}

TEST(PlanLanes, LanesAreDoneInTheFewestTurnsAndThenWithTheFewestSums) {
  EXPECT_EQ(ItemsOf({0, 8}, 1, 3), (Items{{{0, 7}}}));
  EXPECT_EQ(ItemsOf({0, 8}, 2, 3), (Items{{{0, 3}, {4, 7}}}));
  EXPECT_EQ(ItemsOf({0, 8}, 8, 3).size(), 1u);
  EXPECT_EQ(ItemsOf({8, 13}, 2, 3), (Items{{{8, 9}, {10, 11}}, {{12, 12}}}));
  // Of pairs two lanes would be idle for a whole round.
  EXPECT_EQ(ItemsOf({0, 8}, 3, 3),
            (Items{{{0, 0}, {1, 1}, {2, 2}}, {{3, 3}, {4, 4}, {5, 5}}, {{6, 6}, {7, 7}}}));
}

TEST(PlanLanes, AddsNoMoreThanLanesCanKeep) {
  EXPECT_EQ(ItemsOf({0, 8}, 1, 1), (Items{{{0, 1}}, {{2, 3}}, {{4, 5}}, {{6, 7}}}));
  EXPECT_EQ(ItemsOf({0, 4}, 2, 0), (Items{{{0, 0}, {1, 1}}, {{2, 2}, {3, 3}}}));
}

TEST(PlanLanes, SumsThatWaitAreCounted) {
  EXPECT_EQ(WaitingSums(1), 0);
  EXPECT_EQ(WaitingSums(2), 1);
  EXPECT_EQ(WaitingSums(5), 3);
  EXPECT_EQ(WaitingSums(16), 4);
  EXPECT_EQ(WaitingSums(16, 2), 3);
  EXPECT_EQ(WaitingSums(16, 8), 1);
  EXPECT_EQ(WaitingSums(16, 16), 0);
}

}  // namespace
}  // namespace rubato
