#include "common/space/reduction_tree.h"

#include <algorithm>

#include "common/base/check.h"

namespace rubato {
namespace {

// Where a node of `n` > 1 leaves splits: the largest power of two below n.
int64_t LeftLeaves(int64_t n) {
  return int64_t{1} << (63 - __builtin_clzll(static_cast<uint64_t>(n - 1)));
}

// The least power of two that is not below n.
int64_t Widen(int64_t n) { return n == 1 ? 1 : 2 * LeftLeaves(n); }

void Cover(Range node, Range leaves, std::vector<Range>* out) {
  if (leaves.end <= node.begin || node.end <= leaves.begin) return;
  if (leaves.begin <= node.begin && node.end <= leaves.end) {
    out->push_back(node);
    return;
  }
  const int64_t middle = node.begin + LeftLeaves(node.size());
  Cover({node.begin, middle}, leaves, out);
  Cover({middle, node.end}, leaves, out);
}

}  // namespace

ReductionTree::ReductionTree(int64_t leaves) : leaves_(leaves) { RUBATO_CHECK(leaves > 0); }

Range ReductionTree::Run(int64_t leaf, int64_t size) const {
  const int64_t begin = leaf & -size;
  return {begin, std::min(begin + size, leaves_)};
}

bool ReductionTree::IsNode(Range node) const {
  if (node.empty() || node.begin < 0 || node.end > leaves_) return false;
  return Run(node.begin, Widen(node.size())) == node;
}

Range ReductionTree::Parent(Range node) const {
  RUBATO_CHECK(node.size() < leaves_);
  Range parent = node;
  for (int64_t size = 2 * Widen(node.size()); parent == node; size *= 2) {
    parent = Run(node.begin, size);
  }
  return parent;
}

Range ReductionTree::Sibling(Range node) const {
  const Range parent = Parent(node);
  return parent.begin == node.begin ? Range{node.end, parent.end} : Range{parent.begin, node.begin};
}

std::vector<Range> ReductionTree::MaximalNodes(Range leaves) const {
  std::vector<Range> nodes;
  if (!leaves.empty()) Cover(root(), leaves, &nodes);
  return nodes;
}

}  // namespace rubato
