#include "server/coordinator/latecomers.h"

#include <map>

#include "common/base/exit_code.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

// With which exit code who has been told to stop.
std::map<PeerId, int> Told(Latecomers* latecomers, int exit_code) {
  coordinator::Outcomes out;
  latecomers->Tell(coordinator::MakeStop(exit_code, "the end"), &out);
  std::map<PeerId, int> told;
  for (const coordinator::Outcome& outcome : out) {
    const auto& send = std::get<coordinator::Send>(outcome);
    EXPECT_EQ(send.message.stop().reason(), "the end");
    told[send.peer] = send.message.stop().exit_code();
  }
  return told;
}

TEST(LatecomersTest, AllWhoWaitAreToldOnceHowItEnds) {
  for (const int exit_code : {0, kExitFailure}) {
    Latecomers latecomers(3);
    EXPECT_TRUE(latecomers.Add(7));
    EXPECT_TRUE(latecomers.Add(9));
    EXPECT_EQ(latecomers.size(), 2);
    EXPECT_THAT(Told(&latecomers, exit_code),
                UnorderedElementsAre(Pair(7, exit_code), Pair(9, exit_code)));
    EXPECT_FALSE(latecomers.Has(7));
    EXPECT_THAT(Told(&latecomers, exit_code), IsEmpty());
  }
}

TEST(LatecomersTest, WhoHasGoneIsNotTold) {
  Latecomers latecomers(3);
  latecomers.Add(7);
  latecomers.Add(9);
  latecomers.OnGone(7);
  latecomers.OnGone(8);  // never came
  EXPECT_FALSE(latecomers.Has(7));
  EXPECT_TRUE(latecomers.Has(9));
  EXPECT_THAT(Told(&latecomers, 0), UnorderedElementsAre(Pair(9, 0)));
}

TEST(LatecomersTest, NoMoreWaitThanMayBeThere) {
  Latecomers latecomers(2);
  EXPECT_TRUE(latecomers.Add(1));
  EXPECT_TRUE(latecomers.Add(2));
  EXPECT_FALSE(latecomers.Add(3));
  EXPECT_FALSE(latecomers.Has(3));
  latecomers.OnGone(1);
  EXPECT_TRUE(latecomers.Add(3));
}

}  // namespace
}  // namespace rubato
