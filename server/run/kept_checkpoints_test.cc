#include "server/run/kept_checkpoints.h"

#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

proto::Checkpoint Settings(int keep_last) {
  proto::Checkpoint settings;
  settings.set_keep_last(keep_last);
  return settings;
}

proto::Checkpoint KeepBest(int keep_last, proto::KeepBest::Mode mode) {
  proto::Checkpoint settings = Settings(keep_last);
  settings.mutable_keep_best()->set_metric("eval/loss");
  settings.mutable_keep_best()->set_mode(mode);
  return settings;
}

TEST(KeptCheckpointsTest, KeepsTheNewest) {
  KeptCheckpoints kept;
  kept.Add({"a", 1, 0});
  kept.Add({"b", 2, 0});
  EXPECT_THAT(kept.Expire(Settings(2)), IsEmpty());
  kept.Add({"c", 3, 0});
  EXPECT_THAT(kept.Expire(Settings(2)), ElementsAre("a"));
  EXPECT_THAT(kept.Expire(Settings(1)), ElementsAre("b"));
}

// All that a loss of power may leave.
TEST(KeptCheckpointsTest, KeepsTheNewestOnTheDisk) {
  KeptCheckpoints kept;
  kept.Add({"a", 1, 0});
  kept.Add({"b", 2, 0});
  kept.OnFlushed("b");
  kept.Add({"c", 3, 0});
  kept.Add({"d", 4, 0});
  EXPECT_THAT(kept.Expire(Settings(1)), ElementsAre("a", "c"));
  kept.Add({"e", 5, 0});
  EXPECT_THAT(kept.Expire(Settings(1)), ElementsAre("d"));
  kept.OnFlushed("e");
  EXPECT_THAT(kept.Expire(Settings(1)), ElementsAre("b"));
  kept.OnFlushed("e");
  kept.Add({"e", 5, 0});  // anew
  EXPECT_THAT(kept.Expire(Settings(1)), IsEmpty());
}

// The evaluation of a checkpoint's step comes when the checkpoint has been written.
TEST(KeptCheckpointsTest, AnEvaluationCountsForTheCheckpointOfItsStep) {
  for (const auto mode : {proto::KeepBest::MODE_MIN, proto::KeepBest::MODE_MAX}) {
    const double sign = mode == proto::KeepBest::MODE_MIN ? 1 : -1;
    const proto::Checkpoint settings = KeepBest(1, mode);
    KeptCheckpoints kept;
    kept.Add({"a", 10, 10});
    EXPECT_FALSE(kept.best(settings.keep_best()).has_value());
    EXPECT_THAT(kept.Expire(settings), IsEmpty());
    kept.OnEvaluation(10, sign * 3);
    kept.Add({"b", 20, 20});
    EXPECT_EQ(kept.best(settings.keep_best())->path, "a") << "the other may turn out to be better";
    EXPECT_THAT(kept.Expire(settings), IsEmpty()) << "the newest, and the best that is known";
    kept.OnEvaluation(20, sign * 1);
    kept.Add({"c", 30, 30});
    EXPECT_THAT(kept.Expire(settings), ElementsAre("a"));
    kept.OnEvaluation(30, sign * 2);
    kept.Add({"d", 35, 30});
    EXPECT_THAT(kept.Expire(settings), ElementsAre("c"));
    const auto best = kept.best(settings.keep_best());
    ASSERT_TRUE(best.has_value());
    EXPECT_EQ(best->path, "b");
    EXPECT_EQ(best->metric, sign * 1);
    kept.Add({"e", 40, 40});
    kept.OnEvaluation(40, std::nan(""));
    EXPECT_THAT(kept.Expire(settings), ElementsAre("d"));
    kept.Add({"f", 50, 50});
    EXPECT_THAT(kept.Expire(settings), ElementsAre("e")) << "what is not a number is not best";
  }
}

TEST(KeptCheckpointsTest, WhatIsStillToBeEvaluatedIsKept) {
  const proto::Checkpoint settings = KeepBest(1, proto::KeepBest::MODE_MIN);
  KeptCheckpoints kept;
  kept.Add({"before", 5, 0});  // of no evaluation
  kept.Add({"a", 10, 10});
  kept.Add({"a5", 15, 10});
  kept.Add({"b", 20, 20});
  EXPECT_THAT(kept.Expire(settings), ElementsAre("before", "a5"));
  kept.OnEvaluation(10, 1);
  KeptCheckpoints pending;
  pending.OnEvaluation(10, 1);
  pending.Add({"b", 20, 20});
  EXPECT_FALSE(pending.best(settings.keep_best()).has_value()) << "that was of others";
  kept.OnEvaluation(20, 2);
  kept.Add({"c", 30, 30});
  EXPECT_THAT(kept.Expire(settings), ElementsAre("b"));
}

// Tests run beside each other: that of the first checkpoint is told last.
TEST(KeptCheckpointsTest, AnEvaluationMayComeAfterLaterOnes) {
  const proto::Checkpoint settings = KeepBest(1, proto::KeepBest::MODE_MAX);
  KeptCheckpoints kept;
  kept.Add({"a", 10, 10});
  kept.Add({"b", 20, 20});
  kept.OnEvaluation(20, 2);
  kept.Add({"c", 30, 30});
  kept.OnEvaluation(30, 1);
  EXPECT_THAT(kept.Expire(settings), IsEmpty());
  kept.OnEvaluation(10, 3);
  EXPECT_THAT(kept.Expire(settings), ElementsAre("b"));
  EXPECT_EQ(kept.best(settings.keep_best())->path, "a");
}

TEST(KeptCheckpointsTest, WhoseEvaluationIsNeverToldIsKeptNoLongerThanOthersMayBeUnderWay) {
  const proto::Checkpoint settings = KeepBest(1, proto::KeepBest::MODE_MAX);
  KeptCheckpoints kept;
  kept.OnEvaluation(5, 1);
  kept.Add({"a", 10, 10});
  kept.Add({"b", 11, 11});
  std::vector<std::string> expired;
  for (int step = 12; step < 40 && expired.empty(); ++step) {
    kept.OnEvaluation(step, step);
    kept.Add({std::to_string(step), step, step});
    if (const auto more = kept.Expire(settings); step == 27) expired = more;
  }
  EXPECT_THAT(expired, ElementsAre("a", "b", "26"));
}

// The parameters of the end are tested when their checkpoint is there.
TEST(KeptCheckpointsTest, ThatOfTheEndWaitsForItsOwnEvaluation) {
  const proto::Checkpoint settings = KeepBest(1, proto::KeepBest::MODE_MAX);
  for (const double end : {1, 4}) {
    KeptCheckpoints kept;
    kept.Add({"a", 10, 10});
    kept.OnEvaluation(10, 2);
    kept.OnEvaluation(20, 3);
    kept.Add({"end", 25, 20, /*is_flushed=*/false, /*is_of_end=*/true});
    EXPECT_THAT(kept.Expire(settings), IsEmpty()) << "it may turn out to be worse";
    EXPECT_EQ(kept.best(settings.keep_best())->path, "end") << "by the last test before it";
    kept.OnEvaluation(25, end);
    EXPECT_EQ(kept.best(settings.keep_best())->path, end > 2 ? "end" : "a");
  }
}

TEST(KeptCheckpointsTest, WhatWasEvaluatedInVainIsForgotten) {
  const proto::Checkpoint settings = KeepBest(1, proto::KeepBest::MODE_MAX);
  KeptCheckpoints kept;
  kept.Add({"a", 10, 10});
  kept.OnEvaluation(10, 1);
  kept.OnEvaluation(20, 3);
  kept.GoBack(10);
  kept.Add({"b", 25, 20});
  EXPECT_EQ(kept.best(settings.keep_best())->path, "a");
  EXPECT_THAT(kept.Expire(settings), IsEmpty());
}

// A script may tell other metrics, or none.
TEST(KeptCheckpointsTest, WhereTheMetricIsNeverToldFewArePending) {
  for (const bool tells : {false, true}) {
    KeptCheckpoints kept;
    size_t expired = 0;
    for (int step = 1; step <= 40; ++step) {
      kept.Add({std::to_string(step), step, /*due=*/step});
      if (tells) kept.OnEvaluation(step, std::nan(""));
      expired += kept.Expire(KeepBest(1, proto::KeepBest::MODE_MAX)).size();
    }
    EXPECT_EQ(expired, tells ? 39u : 24u);
  }
}

TEST(KeptCheckpointsTest, OneThatIsWrittenAnewIsOne) {
  KeptCheckpoints kept;
  proto::Checkpoint settings;
  settings.set_keep_last(1);
  kept.Add({"a", 1, 0});
  kept.Add({"b", 2, 0});
  EXPECT_THAT(kept.Expire(settings), testing::ElementsAre("a"));
  kept.Add({"b", 2, 0});
  EXPECT_THAT(kept.Expire(settings), testing::IsEmpty());
}

}  // namespace
}  // namespace rubato
