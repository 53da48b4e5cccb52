#include "worker/step/lane_plan.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
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

// What is added, written out: "((0+1)+2)".
std::string Sum(const ReductionTree& tree, Range node) {
  if (node.size() == 1) return absl::StrCat(node.begin);
  Range left = {node.begin, node.begin + 1};
  while (!(tree.Parent(left) == node)) left = tree.Parent(left);
  return absl::StrCat("(", Sum(tree, left), "+", Sum(tree, {left.end, node.end}), ")");
}

TEST(SumRound, RoundsMakeTheNodesSumAlongTheTree) {
  for (int64_t leaves = 1; leaves <= 20; ++leaves) {
    const ReductionTree tree(leaves);
    for (int64_t lanes = 1; lanes <= 8; ++lanes) {
      for (int keeps = 0; keeps <= 3; ++keeps) {
        for (const Range& node : tree.MaximalNodes({leaves / 3, leaves})) {
          std::vector<Range> nodes;
          std::map<int64_t, std::string> waiting;  // by place
          std::string whole;
          for (const LaneRound& round : PlanLanes(node, lanes, keeps)) {
            std::vector<std::string> sums;
            for (const Range& item : round.items) sums.push_back(Sum(tree, item));
            const SumsOfRound what = SumRound(tree, node, round.items, &nodes);
            for (const SumsOfRound::Addition& addition : what.additions) {
              const std::string& left =
                  addition.from < 0 ? waiting[~addition.from] : sums[addition.from];
              sums[addition.to] = absl::StrCat("(", left, "+", sums[addition.to], ")");
            }
            for (const SumsOfRound::Wait& wait : what.waits) {
              waiting[wait.place] = sums[wait.item];
            }
            EXPECT_LE(static_cast<int64_t>(nodes.size()), WaitingPlaces(leaves, lanes, keeps));
            for (size_t place = 0; place < nodes.size(); ++place) {
              EXPECT_EQ(waiting[place], Sum(tree, nodes[place]));
            }
            EXPECT_EQ(whole, "");
            if (what.whole >= 0) whole = sums[what.whole];
          }
          EXPECT_EQ(whole, Sum(tree, node)) << leaves << " leaves, " << lanes << " lanes";
        }
      }
    }
  }
}

TEST(WaitingPlaces, NothingWaitsIfAsManyGpusAsAPowerOfTwoShareOne) {
  EXPECT_EQ(WaitingPlaces(16, 4, WaitingSums(16, 4)), 0);
  EXPECT_EQ(WaitingPlaces(8, 8, WaitingSums(8, 8)), 0);
  EXPECT_EQ(WaitingPlaces(10, 4, WaitingSums(10, 4)), 1);
}

}  // namespace
}  // namespace rubato
