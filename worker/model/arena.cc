#include "worker/model/arena.h"

#include <algorithm>
#include <numeric>

namespace rubato {
namespace {

// A cache line of float32, and the widest register.
constexpr int64_t kAlignment = 16;

}  // namespace

ArenaPlan PlanArena(const std::vector<ArenaRequest>& requests) {
  ArenaPlan plan;
  plan.offsets.resize(requests.size());
  const auto rounded = [&](int i) {
    return (requests[i].size + kAlignment - 1) / kAlignment * kAlignment;
  };
  std::vector<int> order(requests.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return requests[a].size > requests[b].size; });
  std::vector<int> placed;  // by offset
  for (int i : order) {
    int64_t offset = 0;
    for (int other : placed) {
      const bool meet =
          requests[i].first <= requests[other].last && requests[other].first <= requests[i].last;
      if (!meet) continue;
      if (offset + rounded(i) <= plan.offsets[other]) break;  // fits before it
      offset = std::max(offset, plan.offsets[other] + rounded(other));
    }
    plan.offsets[i] = offset;
    plan.size = std::max(plan.size, offset + rounded(i));
    placed.insert(std::upper_bound(placed.begin(), placed.end(), i,
                                   [&](int a, int b) { return plan.offsets[a] < plan.offsets[b]; }),
                  i);
  }
  return plan;
}

}  // namespace rubato
