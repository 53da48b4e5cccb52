// The sum of squares of a flat vector, along one fixed tree: its bits depend neither on how the
// vector is cut into blocks and shards nor on the order in which they are added. For the norm of a
// gradient that no process holds whole.
//
// Leaves are runs of 16 values from multiples of 16 on (a block is a multiple of 64 bytes), each
// summed in double precision in a fixed order; above them stands the tree of
// common/space/reduction_tree.h.
#ifndef RUBATO_COMMON_SPACE_SUM_OF_SQUARES_H_
#define RUBATO_COMMON_SPACE_SUM_OF_SQUARES_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/space/reduction_tree.h"

namespace rubato {

class SumOfSquares {
 public:
  static constexpr int64_t kLeafValues = 16;

  struct Node {
    Range leaves;
    double sum = 0;
  };

  // Over a vector of `values` > 0 floats.
  explicit SumOfSquares(int64_t values);

  // The values from `begin` on, a multiple of kLeafValues; a whole number of leaves, or up to the
  // vector's end. Each value once.
  void Add(int64_t begin, absl::Span<const float> values);
  // Adds a sum from another process. False, without a change, if it is not a node of the tree or
  // overlaps with a sum that is here.
  bool AddNode(const Node& node);

  // The partial sums so far: disjoint, in no particular order.
  const std::vector<Node>& nodes() const { return nodes_; }
  // Whether all is here; then its sum.
  bool complete() const { return nodes_.size() == 1 && nodes_[0].leaves == tree_.root(); }
  double sum() const { return nodes_[0].sum; }

  void Clear() { nodes_.clear(); }

 private:
  ReductionTree tree_;
  std::vector<Node> nodes_;
};

// The factor for the mean gradient over `weight` samples that makes its norm at most `max_norm`.
// `sum` is the sum of squares of the gradient's sum over these samples. As
// torch.nn.utils.clip_grad_norm_: min(1, max_norm / (norm + 1e-6)).
double ClipFactor(double sum, int64_t weight, double max_norm);

}  // namespace rubato

#endif  // RUBATO_COMMON_SPACE_SUM_OF_SQUARES_H_
