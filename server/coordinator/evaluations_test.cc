#include "server/coordinator/evaluations.h"

#include <cmath>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "common/space/modes.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

constexpr WorkerId kFirst{0, 1}, kSecond{1, 1};

// Two epochs of 16 samples, tested after each; steps have 8 samples, contributions 4.
class EvaluationsTest : public ::testing::Test {
 protected:
  EvaluationsTest() {
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
        "cluster { workers { start: 2 } } train { batch_size: 8 micro_batches: 4 until { epochs: 2 "
        "} stop_when { metric: 'eval/loss' at_most: 0.5 } } evaluation { every { epochs: 1 } "
        "}",
        &job_));
  }

  Lineage In(const proto::Mode& mode) const {
    Lineage lineage(job_, 16);
    lineage.Begin(mode, 0, 0);
    return lineage;
  }

  static proto::Progress Computed(int64_t unit, int64_t first_leaf = 0) {
    proto::Progress progress;
    progress.set_unit(unit);
    progress.set_first_leaf(first_leaf);
    return progress;
  }

  proto::Job job_;
};

TEST_F(EvaluationsTest, OnArrivalOneIsAskedForWithItsUnitAndBeginsWithIt) {
  Evaluations evaluations(job_, 16);
  const Lineage lineage = In(AsyncMode());
  EXPECT_FALSE(evaluations.Ask(kFirst, 3, /*is_new=*/true, lineage));
  EXPECT_TRUE(evaluations.Ask(kFirst, 4, /*is_new=*/true, lineage));
  EXPECT_TRUE(evaluations.under_way().empty());
  EXPECT_TRUE(evaluations.Ask(kSecond, 4, /*is_new=*/false, lineage)) << "the first is lost";
  evaluations.OnGivenComputed(kSecond, 4);
  EXPECT_EQ(evaluations.under_way().at(4), kSecond);
  EXPECT_FALSE(evaluations.Ask(kFirst, 4, /*is_new=*/false, lineage)) << "it is made already";
}

TEST_F(EvaluationsTest, InSyncWhoComputesTheFirstLeafTests) {
  Evaluations evaluations(job_, 16);
  const Lineage lineage = In(SyncMode());
  evaluations.OnComputed(kSecond, Computed(2, /*first_leaf=*/2), lineage);
  EXPECT_TRUE(evaluations.under_way().empty());
  evaluations.OnComputed(kFirst, Computed(2), lineage);
  EXPECT_EQ(evaluations.under_way().at(2), kFirst);
  evaluations.OnResult(2, MetricsLine{});
  EXPECT_TRUE(evaluations.under_way().empty());
}

// Nobody computes the unit at which a lineage ends, so nobody tests there.
TEST_F(EvaluationsTest, WhatIsDueWhereALineageEndsIsTestedInTheNext) {
  job_.mutable_evaluation()->mutable_every()->set_samples(6);
  for (const int64_t until : {3, 4}) {  // 12 and 16 samples
    Evaluations evaluations(job_, 16);
    Lineage lineage = In(AsyncMode());
    lineage.Cut(until);
    const bool is_due = until == 3;
    EXPECT_EQ(evaluations.EndLineage(lineage), is_due);
    evaluations.BeginLineage();
    lineage.BeginNext(until);
    EXPECT_EQ(evaluations.Ask(kFirst, until, /*is_new=*/true, lineage), is_due);
    lineage.Cut(until);
    EXPECT_EQ(evaluations.EndLineage(lineage), is_due) << "nothing is computed in this one";
  }
}

TEST_F(EvaluationsTest, SaysWhenTheTargetIsMet) {
  Evaluations evaluations(job_, 16);
  MetricsLine line;
  line.loss = 0.75;
  EXPECT_FALSE(evaluations.OnResult(2, line).has_value());
  line.loss = 0.5;
  EXPECT_EQ(evaluations.OnResult(4, line), "the target is met: eval/loss is 0.5");
  EXPECT_EQ(evaluations.last()->loss, 0.5);
}

TEST_F(EvaluationsTest, TheLastResultIsOfTheLatestParametersWhicheverComesFirst) {
  Evaluations evaluations(job_, 16);
  MetricsLine line;
  for (const int64_t unit : {2, 6, 4}) {
    line.due = unit;
    line.loss = static_cast<double>(unit);
    EXPECT_FALSE(evaluations.OnResult(unit, line).has_value());
    EXPECT_EQ(evaluations.last()->loss, unit == 2 ? 2 : 6);
  }
}

TEST_F(EvaluationsTest, AScriptsFigureIsATarget) {
  job_.mutable_train()->mutable_stop_when()->set_metric("eval/f1");
  for (const bool at_least : {true, false}) {
    proto::StopWhen& when = *job_.mutable_train()->mutable_stop_when();
    at_least ? when.set_at_least(0.5) : when.set_at_most(0.5);
    Evaluations evaluations(job_, 16);
    MetricsLine line;
    line.accuracy = 0.5;
    EXPECT_FALSE(evaluations.OnResult(2, line).has_value()) << "it is not told";
    for (const double unmet : {std::nan(""), at_least ? 0.25 : 0.75}) {
      line.others = {{"f1", unmet}};
      EXPECT_FALSE(evaluations.OnResult(4, line).has_value()) << unmet;
    }
    line.others = {{"f1", 0.5}};
    EXPECT_EQ(evaluations.OnResult(6, line), "the target is met: eval/f1 is 0.5");
  }
}

TEST_F(EvaluationsTest, AScriptThatTellsNothingOfWhatTheJobGoesByIsWarnedOfOnce) {
  Evaluations evaluations(job_, 16);
  EXPECT_THAT(evaluations.OnPassed(kFirst, 4, /*is_told=*/false, /*is_final=*/true), IsEmpty());
  EXPECT_THAT(
      evaluations.OnPassed(kFirst, 2, /*is_told=*/false, /*is_final=*/false),
      ElementsAre(StartsWith("nothing was told of the test at step 2, expected eval/loss, by which "
                             "train.stop_when goes: the script's job.evaluate")));
  EXPECT_THAT(evaluations.OnPassed(kSecond, 4, /*is_told=*/false, /*is_final=*/false), IsEmpty());

  job_.mutable_train()->clear_stop_when();
  EXPECT_THAT(Evaluations(job_, 16).OnPassed(kFirst, 2, /*is_told=*/false, /*is_final=*/false),
              IsEmpty());
  job_.mutable_checkpoint()->mutable_keep_best()->set_metric("eval/f1");
  EXPECT_THAT(Evaluations(job_, 16).OnPassed(kFirst, 2, /*is_told=*/false, /*is_final=*/false),
              ElementsAre(HasSubstr("expected eval/f1, by which checkpoint.keep_best goes")));
}

TEST_F(EvaluationsTest, AScriptThatTestsWhereItsRankIs0AloneIsWarnedOfOnce) {
  job_.mutable_train()->clear_stop_when();
  struct Passed {
    WorkerId worker;
    bool is_told;
  };
  const auto warnings = [this](std::initializer_list<Passed> all) {
    Evaluations evaluations(job_, 16);
    std::vector<std::string> found;
    for (const Passed& one : all) {
      for (std::string& text : evaluations.OnPassed(one.worker, 2, one.is_told, false)) {
        found.push_back(std::move(text));
      }
    }
    return found;
  };
  const auto is_warned =
      ElementsAre(AllOf(StartsWith("a test was worker 1's, which told nothing"),
                        HasSubstr("not where job.rank == 0 alone, and as often as tests are due")));
  EXPECT_THAT(warnings({{kSecond, false}, {kFirst, true}, {kSecond, false}}), is_warned);
  EXPECT_THAT(warnings({{kFirst, true}, {kSecond, false}}), is_warned);
  EXPECT_THAT(warnings({{kSecond, false}, {kSecond, false}}), IsEmpty()) << "it tests nowhere";
  EXPECT_THAT(warnings({{kFirst, false}, {kSecond, false}, {kFirst, true}}), IsEmpty())
      << "it tests in some epochs";
  EXPECT_THAT(warnings({{kSecond, true}, {kFirst, true}, {kSecond, false}}), IsEmpty());
}

}  // namespace
}  // namespace rubato
