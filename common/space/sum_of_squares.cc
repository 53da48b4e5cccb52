#include "common/space/sum_of_squares.h"

#include <algorithm>
#include <cmath>

#include "common/base/check.h"

namespace rubato {
namespace {

constexpr int64_t kLeaf = SumOfSquares::kLeafValues;

// Of up to one leaf: four partial sums in turn, added as (0 + 1) + (2 + 3).
double LeafSum(const float* values, int64_t count) {
  double sums[4] = {0, 0, 0, 0};
  for (int64_t i = 0; i < count; ++i) {
    const double value = values[i];
    sums[i & 3] += value * value;
  }
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// The node over the leaves of values[0, count): split as the reduction tree splits.
double NodeSum(const float* values, int64_t count) {
  if (count <= kLeaf) return LeafSum(values, count);
  int64_t left = kLeaf;
  while (left * 2 < (count + kLeaf - 1) / kLeaf * kLeaf) left *= 2;
  return NodeSum(values, left) + NodeSum(values + left, count - left);
}

}  // namespace

SumOfSquares::SumOfSquares(int64_t values) : tree_((values + kLeaf - 1) / kLeaf) {}

void SumOfSquares::Add(int64_t begin, absl::Span<const float> values) {
  RUBATO_CHECK(begin % kLeaf == 0);
  const int64_t count = static_cast<int64_t>(values.size());
  const Range leaves{begin / kLeaf, (begin + count + kLeaf - 1) / kLeaf};
  for (const Range& node : tree_.MaximalNodes(leaves)) {
    const int64_t from = node.begin * kLeaf - begin;
    const int64_t to = std::min(count, node.end * kLeaf - begin);
    RUBATO_CHECK(AddNode({node, NodeSum(values.data() + from, to - from)}));
  }
}

bool SumOfSquares::AddNode(const Node& node) {
  if (!tree_.IsNode(node.leaves)) return false;
  for (const Node& other : nodes_) {
    if (other.leaves.begin < node.leaves.end && node.leaves.begin < other.leaves.end) return false;
  }
  Node sum = node;
  for (bool folded = true; folded && !(sum.leaves == tree_.root());) {
    folded = false;
    const Range sibling = tree_.Sibling(sum.leaves);
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (!(nodes_[i].leaves == sibling)) continue;
      sum = {tree_.Parent(sum.leaves), sum.sum + nodes_[i].sum};
      nodes_[i] = nodes_.back();
      nodes_.pop_back();
      folded = true;
      break;
    }
  }
  nodes_.push_back(sum);
  return true;
}

double ClipFactor(double sum, int64_t weight, double max_norm) {
  const double norm = std::sqrt(sum) / static_cast<double>(weight);
  return std::min(1.0, max_norm / (norm + 1e-6));
}

}  // namespace rubato
