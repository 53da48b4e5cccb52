#include "common/space/reduction_tree.h"

#include "common/base/check.h"

namespace rubato {
namespace {

// Where a node of `n` > 1 leaves splits: the largest power of two below n.
int64_t LeftLeaves(int64_t n) {
  return int64_t{1} << (63 - __builtin_clzll(static_cast<uint64_t>(n - 1)));
}

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

bool ReductionTree::IsNode(Range node) const {
  if (node.empty() || node.begin < 0 || node.end > leaves_) return false;
  Range at = root();
  while (!(at == node)) {
    if (at.size() == 1) return false;
    const int64_t middle = at.begin + LeftLeaves(at.size());
    if (node.end <= middle) {
      at.end = middle;
    } else if (node.begin >= middle) {
      at.begin = middle;
    } else {
      return false;
    }
  }
  return true;
}

Range ReductionTree::Parent(Range node) const {
  Range at = root();
  while (true) {
    RUBATO_CHECK(at.size() > node.size());
    const int64_t middle = at.begin + LeftLeaves(at.size());
    const Range child = node.begin < middle ? Range{at.begin, middle} : Range{middle, at.end};
    if (child == node) return at;
    at = child;
  }
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
