#include "worker/model/arena.h"

#include <algorithm>
#include <vector>

#include "common/base/random.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

TEST(Arena, WhatIsNeededAtTheSameTimeLiesApart) {
  RandomStream stream(31);
  for (int round = 0; round < 200; ++round) {
    std::vector<ArenaRequest> requests(1 + stream.Below(30));
    for (ArenaRequest& request : requests) {
      request.size = stream.Below(100);
      request.first = static_cast<int>(stream.Below(20));
      request.last = request.first + static_cast<int>(stream.Below(10));
    }
    const ArenaPlan plan = PlanArena(requests);
    int64_t together = 0;  // the most that is needed at one time
    for (int time = 0; time < 30; ++time) {
      std::vector<bool> taken(plan.size);
      int64_t now = 0;
      for (size_t i = 0; i < requests.size(); ++i) {
        if (time < requests[i].first || time > requests[i].last) continue;
        EXPECT_EQ(plan.offsets[i] % 16, 0);
        now += requests[i].size;
        for (int64_t k = 0; k < requests[i].size; ++k) {
          ASSERT_LT(plan.offsets[i] + k, plan.size);
          ASSERT_FALSE(taken[plan.offsets[i] + k]) << "round " << round << ", time " << time;
          taken[plan.offsets[i] + k] = true;
        }
      }
      together = std::max(together, now);
    }
    EXPECT_GE(plan.size, together);
  }
}

TEST(Arena, MemoryIsUsedAgain) {
  // A chain: each value lives until the next is made.
  const ArenaPlan plan = PlanArena({{160, 0, 1}, {160, 1, 2}, {160, 2, 3}, {160, 3, 4}});
  EXPECT_EQ(plan.size, 320);
}

}  // namespace
}  // namespace rubato
