// The fixed binary tree along which the gradients of a step's micro-batches are added.
// Floating-point addition is commutative but not associative: with the tree fixed, a sum's bits do
// not depend on who computed what, nor on the order of arrival.
//
// The tree over leaves [0, V): a node of n > 1 leaves splits after the largest power of two below
// n. So every run of 2^k leaves that starts at a multiple of 2^k is a node, cut off where the
// leaves end; there are no others, and a node is named by its leaves.
#ifndef RUBATO_COMMON_SPACE_REDUCTION_TREE_H_
#define RUBATO_COMMON_SPACE_REDUCTION_TREE_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/space/flat_space.h"

namespace rubato {

class ReductionTree {
 public:
  explicit ReductionTree(int64_t leaves);  // > 0

  int64_t leaves() const { return leaves_; }
  Range root() const { return {0, leaves_}; }

  // Whether `node` is a node of the tree.
  bool IsNode(Range node) const;

  // The node that shares `node`'s parent, and their parent. `node` is a node and not the root.
  Range Sibling(Range node) const;
  Range Parent(Range node) const;

  // The fewest nodes that make up `leaves`, in order: what a worker that owns these leaves sends.
  std::vector<Range> MaximalNodes(Range leaves) const;

 private:
  // The node of up to `size` leaves, a power of two, that `leaf` is in.
  Range Run(int64_t leaf, int64_t size) const;

  int64_t leaves_;
};

// The leaves of member `index` of `members`, who divide them as evenly as that goes. Where there
// are more members than leaves, the last have none: the first one often speaks for all.
inline Range LeavesOfMember(int64_t leaves, int64_t index, int64_t members) {
  const int64_t users = std::min(leaves, members);
  if (index >= users) return {leaves, leaves};
  return {index * leaves / users, (index + 1) * leaves / users};
}

}  // namespace rubato

#endif  // RUBATO_COMMON_SPACE_REDUCTION_TREE_H_
