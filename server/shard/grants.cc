#include "server/shard/grants.h"

#include <algorithm>
#include <iterator>

namespace rubato {

Grants::Grants(const proto::View& view) {
  for (const proto::Assignment& assignment : view.assignments()) {
    divisions_.push_back({assignment.from_step(), {}});
    for (const proto::Grant& grant : assignment.grants()) {
      divisions_.back().grants.push_back({grant.rank(), {grant.first_leaf(), grant.end_leaf()}});
    }
  }
}

bool Grants::Denies(uint32_t rank, int64_t step, Range node) const {
  const Division* division = nullptr;
  for (const Division& candidate : divisions_) {
    if (candidate.from_step <= step) division = &candidate;
  }
  if (division == nullptr) return false;
  const auto next =
      std::upper_bound(division->grants.begin(), division->grants.end(), node.begin,
                       [](int64_t leaf, const Grant& grant) { return leaf < grant.leaves.begin; });
  if (next == division->grants.begin()) return true;
  const Grant& grant = *std::prev(next);
  return grant.leaves.end < node.end || static_cast<uint32_t>(grant.rank) != rank;
}

}  // namespace rubato
