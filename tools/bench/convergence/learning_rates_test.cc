#include "tools/bench/convergence/learning_rates.h"

#include <optional>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kAccuracy[] = "accuracy";

TEST(BestRateTest, TheFastestOfThoseWithTheFewestMisses) {
  const Target target = {kAccuracy, 0.9, true};
  EXPECT_EQ(BestRate({{3, 0, 20, 0.9}, {3, 0, 10, 0.9}, {3, 0, 10, 0.9}}, target), 1u);
  EXPECT_EQ(BestRate({{3, 1, 5, 0.95}, {3, 0, 30, 0.9}}, target), 1u);
}

TEST(BestRateTest, TheNearestWhereNoneReachesTheTarget) {
  EXPECT_EQ(BestRate({{3, 3, 5, 0.5}, {3, 3, 50, 0.6}}, {kAccuracy, 0.9, true}), 1u);
  EXPECT_EQ(BestRate({{3, 3, 5, 0.5}, {3, 3, 50, 0.6}}, {"loss", 0.1, false}), 0u);
}

// A run that diverged has no metric, which is less than any loss.
TEST(BestRateTest, NoneThatDivergesWhereNoneReachesTheTarget) {
  const Target loss = {"loss", 0.1, false};
  EXPECT_EQ(BestRate({{3, 3, 5, 0, 3}, {3, 3, 50, 0.6, 0}, {3, 3, 50, 0.5, 1}}, loss), 1u);
  EXPECT_EQ(BestRate({{3, 3, 50, 0.6, 0}, {3, 3, 5, 0, 3}}, loss), 0u);
}

// Of sync 0.1 is the fastest and 1 diverges; of async 0.01 is.
class RateSearchTest : public ::testing::Test {
 protected:
  RateSearchTest() {
    study_.modes = {"sync", "async"};
    study_.target = {kAccuracy, 0.9, true};
    study_.learning_rates = {"0.01", "0.1", "1"};
    const double seconds[2][3] = {{40, 20, 0}, {10, 30, 0}};
    for (size_t mode = 0; mode < 2; ++mode) {
      for (size_t rate = 0; rate < 3; ++rate) {
        for (int seed = 0; seed < kTrialSeeds; ++seed) {
          DoneCell done;
          done.cell.mode = mode;
          done.cell.workers = 4;
          done.cell.seed = seed;
          done.cell.learning_rate = study_.learning_rates[rate];
          done.cell.is_trial = true;
          // A geometric mean of `seconds`.
          done.result.outcome.seconds = rate < 2 ? seconds[mode][rate] * (1 << seed) / 2 : 1e-9;
          done.result.outcome.reached = rate < 2;
          done.result.outcome.best = rate < 2 ? 0.95 : 0;
          if (rate < 2) done.result.outcome.last = 0.95;
          cells_.push_back(done);
        }
      }
    }
  }

  Study study_;
  std::vector<DoneCell> cells_;
};

TEST_F(RateSearchTest, EachModeHasItsOwn) {
  const LearningRates rates = TakenRates(study_, SearchRates(study_, cells_));
  EXPECT_EQ(rates, (LearningRates{{{4, 0, 0}, "0.1"}, {{4, 0, 1}, "0.01"}}));
}

// Runs that miss the target do not tell how fast it is reached.
TEST_F(RateSearchTest, ARunThatDivergesEarlyMakesNoRateFaster) {
  for (DoneCell& done : cells_) {
    if (done.cell.mode != 0 || done.cell.seed != 0) continue;
    done.result.outcome.reached = false;
    if (done.cell.learning_rate == "0.01") {
      done.result.outcome.seconds = 1e-9;
      done.result.outcome.last.reset();
    }
  }
  EXPECT_EQ((TakenRates(study_, SearchRates(study_, cells_))[{4, 0, 0}]), "0.1");
}

TEST_F(RateSearchTest, SaysHowSensitiveEachModeIsAndWhatToTry) {
  EXPECT_THAT(RatesMarkdown(study_, SearchRates(study_, cells_)),
              AllOf(HasSubstr("| sync | 4 | 40 s | **20 s** | misses 3 of 3 |"),
                    HasSubstr("| async | 4 | **10 s** | 30 s | misses 3 of 3 |"),
                    HasSubstr("With 4 workers async took the lowest rate of the list: a still "
                              "lower one"),
                    Not(HasSubstr("workers sync took"))));
}

TEST_F(RateSearchTest, WhatDivergedHasNoPartInTheBest) {
  cells_[0].result.outcome = {1e-9, 0, false, 0, std::nullopt};
  const RateSearch search = SearchRates(study_, cells_);
  EXPECT_EQ(search.modes[0].rates[0].diverged, 1);
  EXPECT_DOUBLE_EQ(search.modes[0].rates[0].best, 0.95);
  EXPECT_EQ(search.modes[0].rates[2].diverged, kTrialSeeds);
}

TEST_F(RateSearchTest, ARunThatFailedIsAMiss) {
  cells_[3].result.error = "no room";
  const RateSearch search = SearchRates(study_, cells_);
  EXPECT_EQ(search.modes[0].rates[1].misses, 1);
  EXPECT_EQ(search.modes[0].taken, 0u);
}

TEST_F(RateSearchTest, WithoutASearchThereIsNothingToSay) {
  EXPECT_EQ(RatesMarkdown(study_, SearchRates(study_, {})), "");
}

}  // namespace
}  // namespace rubato
