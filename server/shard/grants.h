// Who computes which micro-batches of which step, as a view tells a shard.
#ifndef RUBATO_SERVER_SHARD_GRANTS_H_
#define RUBATO_SERVER_SHARD_GRANTS_H_

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <vector>

#include "common/space/flat_space.h"
#include "proto/view.pb.h"

namespace rubato {

class Grants {
 public:
  Grants() = default;
  explicit Grants(const proto::View& view) {
    for (const proto::Assignment& assignment : view.assignments()) {
      divisions_.push_back({assignment.from_step(), {}});
      for (const proto::Grant& grant : assignment.grants()) {
        divisions_.back().grants.push_back({grant.rank(), {grant.first_leaf(), grant.end_leaf()}});
      }
    }
  }

  // Whether the view takes `node` of `step` from others than `rank`, or from nobody: of steps of
  // which it says nothing, which come late or are no steps, it does not.
  bool Denies(uint32_t rank, int64_t step, Range node) const {
    const Division* division = nullptr;
    for (const Division& candidate : divisions_) {
      if (candidate.from_step <= step) division = &candidate;
    }
    if (division == nullptr) return false;
    const auto next = std::upper_bound(
        division->grants.begin(), division->grants.end(), node.begin,
        [](int64_t leaf, const Grant& grant) { return leaf < grant.leaves.begin; });
    if (next == division->grants.begin()) return true;
    const Grant& grant = *std::prev(next);
    return grant.leaves.end < node.end || static_cast<uint32_t>(grant.rank) != rank;
  }

 private:
  struct Grant {
    int32_t rank;
    Range leaves;
  };
  struct Division {
    int64_t from_step;
    std::vector<Grant> grants;  // in order
  };

  std::vector<Division> divisions_;  // each until the next begins
};

}  // namespace rubato

#endif  // RUBATO_SERVER_SHARD_GRANTS_H_
