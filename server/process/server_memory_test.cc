#include "server/process/server_memory.h"

#include <algorithm>
#include <vector>

#include "common/base/random.h"
#include "common/base/status_matchers.h"
#include "common/space/reduction_tree.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

// The oracle: sums that arrive in any order, two siblings becoming one at once.
int64_t MaxThatWait(int64_t leaves, int64_t workers) {
  const ReductionTree tree(leaves);
  std::vector<Range> sent;
  for (int64_t i = 0; i < workers; ++i) {
    for (const Range& node : tree.MaximalNodes({i * leaves / workers, (i + 1) * leaves / workers}))
      sent.push_back(node);
  }
  RandomStream random(leaves * 100 + workers);
  size_t most = 0;
  for (int round = 0; round < 3000; ++round) {
    for (size_t i = sent.size(); i > 1; --i) std::swap(sent[i - 1], sent[random.Below(i)]);
    std::vector<Range> held;
    for (Range node : sent) {
      while (!(node == tree.root())) {
        const auto sibling = std::find(held.begin(), held.end(), tree.Sibling(node));
        if (sibling == held.end()) break;
        held.erase(sibling);
        node = tree.Parent(node);
      }
      if (!(node == tree.root())) held.push_back(node);
      most = std::max(most, held.size());
    }
  }
  return static_cast<int64_t>(most);
}

TEST(ServerMemoryTest, KnowsHowManySumsOfABlockMayWait) {
  EXPECT_EQ(MaxSumsHeld(4, 1), 0);  // what makes the whole step is applied as it comes
  EXPECT_EQ(MaxSumsHeld(4, 2), 1);
  EXPECT_EQ(MaxSumsHeld(8, 8), 4);
  for (const int64_t leaves : {1, 2, 3, 4, 5, 8}) {
    for (int64_t workers = 1; workers <= std::min<int64_t>(leaves, 5); ++workers) {
      EXPECT_EQ(MaxSumsHeld(leaves, workers), MaxThatWait(leaves, workers))
          << workers << " workers, " << leaves << " micro-batches";
    }
  }
}

}  // namespace
}  // namespace rubato
