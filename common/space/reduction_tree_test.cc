#include "common/space/reduction_tree.h"

#include <functional>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {

void PrintTo(const Range& range, std::ostream* out) {
  *out << "[" << range.begin << ", " << range.end << ")";
}

namespace {

using ::testing::ElementsAre;

// The tree as an expression, by its definition.
std::string Expression(const ReductionTree& tree, Range node) {
  if (node.size() == 1) return std::to_string(node.begin);
  Range left{node.begin, node.begin + 1};
  for (int64_t width = 1; width < node.size(); width *= 2) left.end = node.begin + width;
  return "(" + Expression(tree, left) + "+" + Expression(tree, {left.end, node.end}) + ")";
}

TEST(ReductionTreeTest, MaximalNodesAreTheFewestAlignedRuns) {
  EXPECT_THAT(ReductionTree(8).MaximalNodes({0, 8}), ElementsAre(Range{0, 8}));
  EXPECT_THAT(ReductionTree(8).MaximalNodes({1, 7}),
              ElementsAre(Range{1, 2}, Range{2, 4}, Range{4, 6}, Range{6, 7}));
  EXPECT_THAT(ReductionTree(6).MaximalNodes({4, 6}), ElementsAre(Range{4, 6}));
  EXPECT_THAT(ReductionTree(6).MaximalNodes({2, 6}), ElementsAre(Range{2, 4}, Range{4, 6}));
  EXPECT_THAT(ReductionTree(8).MaximalNodes({3, 3}), ElementsAre());
}

// Whatever the division among workers, folding siblings ends in the one expression of the tree.
TEST(ReductionTreeTest, FoldingAnyDivisionAmongWorkersGivesTheSameExpression) {
  for (int64_t leaves = 1; leaves <= 17; ++leaves) {
    const ReductionTree tree(leaves);
    const std::string expected = Expression(tree, tree.root());
    for (int64_t workers = 1; workers <= leaves + 1; ++workers) {
      std::vector<std::pair<Range, std::string>> sums;
      // Last worker first: the order of arrival must not show.
      for (int64_t worker = workers - 1; worker >= 0; --worker) {
        const Range mine{worker * leaves / workers, (worker + 1) * leaves / workers};
        for (const Range& node : tree.MaximalNodes(mine)) {
          ASSERT_TRUE(tree.IsNode(node));
          std::pair<Range, std::string> sum{node, Expression(tree, node)};
          for (bool folded = true; folded && !(sum.first == tree.root());) {
            folded = false;
            for (auto it = sums.begin(); it != sums.end(); ++it) {
              if (!(it->first == tree.Sibling(sum.first))) continue;
              const bool left = it->first.begin < sum.first.begin;
              sum.second = "(" + (left ? it->second : sum.second) + "+" +
                           (left ? sum.second : it->second) + ")";
              sum.first = tree.Parent(sum.first);
              sums.erase(it);
              folded = true;
              break;
            }
          }
          sums.push_back(sum);
        }
      }
      ASSERT_EQ(sums.size(), 1u) << leaves << " leaves, " << workers << " workers";
      EXPECT_EQ(sums[0].second, expected);
    }
  }
}

TEST(ReductionTreeTest, RefusesRangesThatAreNoNodes) {
  const ReductionTree tree(6);
  EXPECT_FALSE(tree.IsNode({1, 3}));
  EXPECT_FALSE(tree.IsNode({0, 7}));
  EXPECT_FALSE(tree.IsNode({2, 2}));
  EXPECT_FALSE(tree.IsNode({0, 6 + 1}));
  EXPECT_FALSE(tree.IsNode({2, 6}));
  EXPECT_TRUE(tree.IsNode({4, 6}));
  EXPECT_TRUE(tree.IsNode({0, 4}));
}

}  // namespace
}  // namespace rubato
