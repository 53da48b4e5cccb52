// The sum of squares of the flat vector, whose bits depend on the values alone: neither on blocks,
// shards and processes that hold its parts, nor on the order in which those come.
//
// Squares of float32 are exact in double. They are added along one binary tree that is fixed by
// absolute positions: its smallest nodes are *units* of 16 values that begin at multiples of 16;
// four units make a leaf of 64 values; node i of level k covers the units [i 2^k, (i + 1) 2^k) and
// is the sum of its two halves. Beyond the vector's end, values are 0. Blocks are multiples of 64
// bytes, i.e. of units, so a part of the vector is a set of whole nodes.
//
//   SumOfSquares sum;                      // on each shard
//   sum.Add(block_begin, gradient);        // its blocks, in any order
//   sum.Merge(sum_of_another_shard);       // in any order
//   norm = std::sqrt(sum.Total());
#ifndef RUBATO_COMMON_SUM_OF_SQUARES_H_
#define RUBATO_COMMON_SUM_OF_SQUARES_H_

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "absl/types/span.h"

namespace rubato {

class SumOfSquares {
 public:
  static constexpr int64_t kUnit = 16;  // values

  // A node of the tree, for the wire.
  struct Node {
    int level = 0;
    int64_t index = 0;
    double sum = 0;
  };

  // The values of the flat vector at [begin, begin + values.size()). `begin` is a multiple of
  // kUnit, and so is the end, unless the vector ends there. Each value is added once.
  void Add(int64_t begin, absl::Span<const float> values);

  // What another has added, or a node of it. Each node is added once: neither it nor a part of it
  // may be here.
  void Merge(const SumOfSquares& other);
  void Add(const Node& node);

  // The fewest nodes that make up what was added, a few for each gap in it.
  std::vector<Node> nodes() const;

  // The sum over all that was added; what was not counts as 0. Not finite if a value is not.
  double Total() const;

 private:
  // By (level, index). No two are siblings: those are added at once, to their parent.
  std::map<std::pair<int, int64_t>, double> nodes_;
};

}  // namespace rubato

#endif  // RUBATO_COMMON_SUM_OF_SQUARES_H_
