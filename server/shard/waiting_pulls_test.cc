#include "server/shard/waiting_pulls.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

Pull PullOf(uint64_t puller, uint32_t worker, uint32_t view, int64_t clock) {
  Pull pull;
  pull.puller = puller;
  pull.worker = worker;
  pull.view = view;
  pull.clock = clock;
  return pull;
}

// The pullers of the block's pulls up to `clock`, which are answered.
std::vector<uint64_t> Answered(WaitingPulls* pulls, int64_t block, int64_t clock) {
  std::vector<uint64_t> pullers;
  pulls->Answer(
      block, [clock](const Pull& pull) { return pull.clock <= clock; },
      [&](const Pull& pull) { pullers.push_back(pull.puller); });
  return pullers;
}

TEST(WaitingPullsTest, EachIsAnsweredOnceInTheOrderOfArrival) {
  WaitingPulls pulls({4, 6});
  for (const uint64_t puller : {3, 1, 2}) {
    pulls.Add(5, PullOf(puller, 0, 1, puller == 1 ? 9 : 0));
  }
  EXPECT_THAT(Answered(&pulls, 4, 9), IsEmpty());
  EXPECT_THAT(Answered(&pulls, 5, 0), ElementsAre(3, 2));
  EXPECT_THAT(Answered(&pulls, 5, 9), ElementsAre(1));
  EXPECT_THAT(Answered(&pulls, 5, 9), IsEmpty());
}

TEST(WaitingPullsTest, APullerThatIsGoneIsForgottenInAllBlocksAndViews) {
  WaitingPulls pulls({0, 2});
  for (const int64_t block : {0, 1}) {
    for (const uint64_t puller : {1, 2}) pulls.Add(block, PullOf(puller, 0, 1, 0));
  }
  pulls.AddEarly(PullOf(1, 0, 2, 0), {0, 2});
  pulls.AddEarly(PullOf(2, 0, 2, 0), {0, 1});
  pulls.ForgetPuller(1);
  EXPECT_THAT(Answered(&pulls, 0, 0), ElementsAre(2));
  EXPECT_THAT(Answered(&pulls, 1, 0), ElementsAre(2));
  const std::vector<WaitingPulls::Early> early = pulls.TakeEarly();
  ASSERT_EQ(early.size(), 1u);
  EXPECT_EQ(early[0].pull.puller, 2u);
  EXPECT_EQ(early[0].blocks, (Range{0, 1}));
  EXPECT_THAT(pulls.TakeEarly(), IsEmpty());
}

TEST(WaitingPullsTest, AViewForgetsWorkersOfEarlierOnesAndNoObserver) {
  WaitingPulls pulls({0, 1});
  pulls.Add(0, PullOf(1, 0, 1, 0));
  pulls.Add(0, PullOf(2, 0, 2, 0));
  pulls.Add(0, PullOf(3, kObserver, 0, 0));
  pulls.ForgetBefore(0, 2);
  EXPECT_THAT(Answered(&pulls, 0, 0), ElementsAre(2, 3));
}

TEST(WaitingPullsTest, SoManyStreamsWaitForABlockAtMost) {
  WaitingPulls pulls({0, 2});
  for (uint64_t puller = 0; puller < WaitingPulls::kMost; ++puller) {
    ASSERT_TRUE(pulls.Add(0, PullOf(puller, kObserver, 0, 0))) << puller;
  }
  EXPECT_FALSE(pulls.Add(0, PullOf(WaitingPulls::kMost, kObserver, 0, 0)));
  EXPECT_TRUE(pulls.Add(0, PullOf(7, kObserver, 0, 1))) << "in place of its own";
  EXPECT_TRUE(pulls.Add(1, PullOf(WaitingPulls::kMost, kObserver, 0, 0)));
  pulls.ForgetPuller(9);
  EXPECT_TRUE(pulls.Add(0, PullOf(WaitingPulls::kMost, kObserver, 0, 0)));
  EXPECT_EQ(Answered(&pulls, 0, 1).size(), WaitingPulls::kMost);
}

}  // namespace
}  // namespace rubato
