#include "server/coordinator/control_call.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Step = ControlCall::Step;

std::vector<Step> Steps(ControlCall* call) {
  std::vector<Step> steps;
  for (Step step = call->Next(); step != Step::kNone; step = call->Next()) steps.push_back(step);
  return steps;
}

proto::CoordinatorMessage Close(uint32_t view) {
  proto::CoordinatorMessage message;
  message.mutable_close()->set_view(view);
  return message;
}

proto::CoordinatorMessage Stop() {
  proto::CoordinatorMessage message;
  message.mutable_stop();
  return message;
}

TEST(ControlCallTest, MessagesGoOneAtATimeInOrder) {
  ControlCall call;
  EXPECT_THAT(Steps(&call), ElementsAre(Step::kRead));
  call.Push(Close(1));
  EXPECT_THAT(Steps(&call), ElementsAre(Step::kWrite));
  EXPECT_EQ(call.outgoing().close().view(), 1u);
  call.Push(Close(2));
  EXPECT_THAT(Steps(&call), IsEmpty());
  EXPECT_EQ(call.outgoing().close().view(), 1u);
  call.OnWritten();
  EXPECT_THAT(Steps(&call), ElementsAre(Step::kWrite));
  EXPECT_EQ(call.outgoing().close().view(), 2u);
}

TEST(ControlCallTest, EndsWhenAStopHasLeftWithAllBeforeIt) {
  ControlCall call;
  call.Push(Close(1));
  call.Push(Stop());
  call.Push(Close(2));  // dropped
  EXPECT_THAT(Steps(&call), ElementsAre(Step::kWrite, Step::kRead));
  call.OnRead(true);  // a last word of the peer's
  EXPECT_THAT(Steps(&call), ElementsAre(Step::kRead));
  call.OnWritten();
  EXPECT_THAT(Steps(&call), ElementsAre(Step::kWrite));
  EXPECT_TRUE(call.outgoing().has_stop());
  call.OnWritten();
  EXPECT_THAT(Steps(&call), ElementsAre(Step::kFinish));
  call.OnRead(true);
  EXPECT_THAT(Steps(&call), IsEmpty());
}

TEST(ControlCallTest, NoMoreIsReadBetweenTwoTicksThanMayBe) {
  ControlCall call;
  for (int i = 0; i < ControlCall::kMaxMessages; ++i) {
    ASSERT_THAT(Steps(&call), ElementsAre(Step::kRead)) << i;
    call.OnRead(true);
  }
  EXPECT_THAT(Steps(&call), IsEmpty());
  call.Push(Close(1));
  EXPECT_THAT(Steps(&call), ElementsAre(Step::kWrite));
  call.OnTick();
  EXPECT_THAT(Steps(&call), ElementsAre(Step::kRead));
}

TEST(ControlCallTest, EachOfMessagesThatComeTogetherCounts) {
  ControlCall call;
  Steps(&call);
  call.OnRead(true, ControlCall::kMaxMessages - 1);
  EXPECT_THAT(Steps(&call), ElementsAre(Step::kRead));
  call.OnRead(true, 2);
  EXPECT_THAT(Steps(&call), IsEmpty());
  call.OnTick();
  EXPECT_THAT(Steps(&call), ElementsAre(Step::kRead));
}

TEST(ControlCallTest, EndsWhenThePeerIsGoneAndNothingIsUnderWay) {
  ControlCall call;
  call.Push(Close(1));
  call.Push(Close(2));
  Steps(&call);
  call.OnRead(false);
  EXPECT_THAT(Steps(&call), IsEmpty());
  call.OnWritten();
  EXPECT_THAT(Steps(&call), ElementsAre(Step::kFinish));
  call.Push(Close(3));
  EXPECT_THAT(Steps(&call), IsEmpty());
}

TEST(ControlCallTest, WhoNeverSpeaksIsNotWaitedFor) {
  const absl::Time begun = absl::UnixEpoch();
  ControlCall silent(begun), other(begun);
  Steps(&silent);
  Steps(&other);
  other.OnRead(true);
  EXPECT_FALSE(silent.KeepsSilent(begun + ControlCall::kPatience));
  const absl::Time later = begun + ControlCall::kPatience + absl::Seconds(1);
  EXPECT_TRUE(silent.KeepsSilent(later));
  EXPECT_FALSE(other.KeepsSilent(later));
}

}  // namespace
}  // namespace rubato
