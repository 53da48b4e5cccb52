#include "server/coordinator/roll_call.h"

#include "gtest/gtest.h"

namespace rubato {
namespace {

TEST(RollCallTest, IsCompleteWhenEachHasAnswered) {
  RollCall call;
  call.Ask({{0, 1}, {1, 3}});
  EXPECT_FALSE(call.complete());
  EXPECT_TRUE(call.OnAnswer({1, 3}));
  EXPECT_TRUE(call.OnAnswer({0, 1}));
  EXPECT_TRUE(call.complete());
}

TEST(RollCallTest, ASecondAnswerCountsForNothing) {
  RollCall call;
  call.Ask({{0, 1}, {1, 1}});
  EXPECT_TRUE(call.OnAnswer({0, 1}));
  EXPECT_FALSE(call.OnAnswer({0, 1}));
  EXPECT_FALSE(call.complete());
}

TEST(RollCallTest, AnAnswerOfAnotherIncarnationCountsForNothing) {
  RollCall call;
  call.Ask({{0, 2}});
  EXPECT_FALSE(call.OnAnswer({0, 1}));
  EXPECT_FALSE(call.OnAnswer({0, 3}));
  EXPECT_FALSE(call.complete());
}

TEST(RollCallTest, ANewQuestionForgetsTheAnswersToTheOneBefore) {
  RollCall call;
  call.Ask({{0, 1}});
  EXPECT_TRUE(call.OnAnswer({0, 1}));
  call.Ask({{0, 1}});
  EXPECT_FALSE(call.complete());
  EXPECT_TRUE(call.OnAnswer({0, 1}));
}

}  // namespace
}  // namespace rubato
