#include "tools/bench/convergence/verdict.h"

#include <cmath>
#include <limits>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Speed = ModeVerdict::Speed;

const Target kAccuracy = {"accuracy", 0.9, true};

RunOutcome Reached(double seconds, double last = 0.92, double samples = 1000) {
  return {seconds, samples, true, last, last};
}
RunOutcome Missed(double end, double last = 0.85) { return {end, 2000, false, last, last}; }

// Ten seeds of `modes` modes; mode 0 is the baseline. The log of mode m's time to the baseline's
// has the mean shift[m] and the standard deviation 0.05.
std::vector<std::vector<RunOutcome>> Draw(std::mt19937_64* random,
                                          const std::vector<double>& shift) {
  std::normal_distribution<double> normal;
  std::vector<std::vector<RunOutcome>> modes(shift.size());
  for (int seed = 0; seed < 10; ++seed) {
    const double base = 100 * std::exp(0.3 * normal(*random));  // seeds differ more than modes
    for (size_t m = 0; m < shift.size(); ++m) {
      const double noise = m == 0 ? 0 : 0.05 * normal(*random);
      modes[m].push_back(Reached(base * std::exp(shift[m] + noise), 0.92 + 0.01 * normal(*random),
                                 1000 + 100 * normal(*random)));
    }
  }
  return modes;
}

TEST(JudgeTest, OfModesThatAreAlikeFewAreCalledFasterOrSlower) {
  std::mt19937_64 random(1);
  constexpr int kDraws = 1000;
  int wrong = 0;
  for (int i = 0; i < kDraws; ++i) {
    const auto verdicts = Judge(Draw(&random, {0, 0, 0, 0}), 0, 0, kAccuracy);
    bool any = false;
    for (const ModeVerdict& verdict : verdicts) {
      any = any || verdict.speed == Speed::kFaster || verdict.speed == Speed::kSlower;
    }
    if (any) ++wrong;
  }
  EXPECT_LE(static_cast<double>(wrong) / kDraws, 0.05 + 3 * std::sqrt(0.05 * 0.95 / kDraws));
}

TEST(JudgeTest, ATenthIsFound) {
  std::mt19937_64 random(2);
  constexpr int kDraws = 400;
  int faster = 0, slower = 0, holds = 0;
  for (int i = 0; i < kDraws; ++i) {
    const auto verdicts = Judge(Draw(&random, {0, -std::log(1.1), std::log(1.1)}), 0, 0, kAccuracy);
    if (verdicts[1].speed == Speed::kFaster) ++faster;
    if (verdicts[2].speed == Speed::kSlower) ++slower;
    if (verdicts[1].speedup.first <= 1.1 && 1.1 <= verdicts[1].speedup.second) ++holds;
  }
  EXPECT_GE(faster, 0.95 * kDraws);
  EXPECT_GE(slower, 0.95 * kDraws);
  EXPECT_GE(holds, (0.95 - 3 * std::sqrt(0.05 * 0.95 / kDraws)) * kDraws);
}

TEST(JudgeTest, TooFewSeedsGiveNoVerdict) {
  std::vector<std::vector<RunOutcome>> modes(2);
  for (int i = 0; i < 5; ++i) {
    modes[0].push_back(Reached(100));
    modes[1].push_back(Reached(10));
  }
  EXPECT_EQ(Judge(modes, 0, 0, kAccuracy)[1].speed, Speed::kTooFewSeeds);
  modes[0].push_back(Reached(100));
  modes[1].push_back(Reached(10));
  EXPECT_EQ(Judge(modes, 0, 0, kAccuracy)[1].speed, Speed::kFaster);
  modes.push_back(modes[1]);  // two are compared: seven are needed
  EXPECT_EQ(Judge(modes, 0, 0, kAccuracy)[1].speed, Speed::kTooFewSeeds);
}

std::vector<std::vector<RunOutcome>> TenSeeds(double seconds) {
  std::vector<std::vector<RunOutcome>> modes(2);
  for (int i = 0; i < 10; ++i) {
    modes[0].push_back(Reached(100 + i));
    modes[1].push_back(Reached(seconds + i));
  }
  return modes;
}

TEST(JudgeTest, AModeWithAMissIsNeverFaster) {
  auto modes = TenSeeds(50);
  EXPECT_EQ(Judge(modes, 0, 0, kAccuracy)[1].speed, Speed::kFaster);
  modes[1][3] = Missed(60);  // its run's end, which is early
  EXPECT_EQ(Judge(modes, 0, 0, kAccuracy)[1].speed, Speed::kCannotTell);
  modes[1][4] = Missed(60);
  const ModeVerdict verdict = Judge(modes, 0, 0, kAccuracy)[1];
  EXPECT_EQ(verdict.speed, Speed::kNotReached);
  EXPECT_EQ(verdict.misses, 2);
}

// Those that reach the target came nearer, and are not asked.
TEST(JudgeTest, OfTheRunsThatMissTheNearestIsTold) {
  auto modes = TenSeeds(50);
  EXPECT_FALSE(Judge(modes, 0, 0, kAccuracy)[1].nearest_miss.has_value());
  modes[1][2].best = 0.99;
  modes[1][3] = Missed(60);
  modes[1][3].best = 0.7;
  modes[1][4] = Missed(60);
  modes[1][4].best = 0.75;
  EXPECT_EQ(Judge(modes, 0, 0, kAccuracy)[1].nearest_miss, 0.75);
  // One that diverged came nowhere.
  modes[1][5] = Missed(60);
  modes[1][5].best = 0.95;
  modes[1][5].last.reset();
  EXPECT_EQ(Judge(modes, 0, 0, kAccuracy)[1].nearest_miss, 0.75);
}

TEST(JudgeTest, WhereTheBaselineMissesNoneIsSlower) {
  auto modes = TenSeeds(200);
  EXPECT_EQ(Judge(modes, 0, 0, kAccuracy)[1].speed, Speed::kSlower);
  modes[0][3] = Missed(150);
  EXPECT_EQ(Judge(modes, 0, 0, kAccuracy)[1].speed, Speed::kCannotTell);
}

TEST(JudgeTest, WhatDivergesIsNoFasterForItsEarlyEnd) {
  auto modes = TenSeeds(200);
  for (RunOutcome& run : modes[0]) {
    run = Missed(1);
    run.last.reset();
  }
  ModeVerdict verdict = Judge(modes, 0, 0, kAccuracy)[1];
  EXPECT_EQ(verdict.speed, Speed::kBaselineNotReached);
  EXPECT_EQ(verdict.speedup.first, 1);
  modes = TenSeeds(50);
  modes[1][0] = Missed(1);
  modes[1][0].last.reset();
  verdict = Judge(modes, 0, 0, kAccuracy)[1];
  EXPECT_LT(verdict.speedup.first, 2.3);  // 101 at most, over 50; and no run of 1 s
  EXPECT_LT(verdict.speedup.second, 2.3);
}

// When it was reached is then not known.
TEST(JudgeTest, ATargetThatTheFirstEvaluationMeetsIsTooEasy) {
  auto modes = TenSeeds(50);
  modes[1][0].at_first = true;
  EXPECT_EQ(Judge(modes, 0, 0, kAccuracy)[1].speed, Speed::kFaster);
  modes[0][1].at_first = modes[0][2].at_first = true;
  EXPECT_EQ(Judge(modes, 0, 0, kAccuracy)[1].speed, Speed::kTooEasy);
}

TEST(JudgeTest, WhereBothMissTheDifferenceIsZero) {
  auto modes = TenSeeds(200);
  for (int i = 0; i < 10; ++i) modes[0][i] = modes[1][i] = Missed(100 + 50 * i);
  modes[1][0].seconds = 1000;
  EXPECT_EQ(Judge(modes, 0, 0, kAccuracy)[1].p, 1);
}

TEST(JudgeTest, FasterAndWorse) {
  auto modes = TenSeeds(50);
  for (int i = 0; i < 10; ++i) modes[1][i].last = 0.9 - 0.001 * i;
  const ModeVerdict verdict = Judge(modes, 0, 0, kAccuracy)[1];
  EXPECT_EQ(verdict.speed, Speed::kFaster);
  EXPECT_EQ(verdict.quality, Finding::kLess);
  EXPECT_LT(verdict.quality_difference.second, 0);
  // Of a loss, lower is better.
  EXPECT_EQ(Judge(modes, 0, 0, {"loss", 0.95, false})[1].quality, Finding::kMore);
}

TEST(JudgeTest, RunsThatDivergedAreMissesAndLeftOutOfTheQuality) {
  auto modes = TenSeeds(50);
  modes[1][0] = Missed(1);
  modes[1][0].last.reset();
  const ModeVerdict verdict = Judge(modes, 0, 0, kAccuracy)[1];
  EXPECT_EQ(verdict.speed, Speed::kCannotTell);
  EXPECT_EQ(verdict.diverged, 1);
  EXPECT_TRUE(std::isfinite(verdict.quality_difference.first));
}

TEST(JudgeTest, ARunThatNeedsFarFewerSamplesThanSyncIsNamed) {
  auto modes = TenSeeds(50);
  for (int i = 0; i < 10; ++i) modes[0][i].samples = 1000 + 10 * (i % 3);
  EXPECT_THAT(Judge(modes, 0, 0, kAccuracy)[1].suspicious, IsEmpty());
  modes[1][7].samples = 900;
  EXPECT_THAT(Judge(modes, 0, 0, kAccuracy)[1].suspicious, ElementsAre(7));
  EXPECT_THAT(Judge(modes, 0, std::nullopt, kAccuracy)[1].suspicious, IsEmpty());
}

TEST(OutcomeOfTest, InterpolatesBetweenTwoEvaluations) {
  const RunOutcome outcome =
      OutcomeOf({{10, 100, 0.5}, {20, 200, 0.8}, {30, 300, 1.0}, {40, 400, 0.95}}, kAccuracy);
  EXPECT_TRUE(outcome.reached);
  EXPECT_DOUBLE_EQ(outcome.seconds, 25);
  EXPECT_DOUBLE_EQ(outcome.samples, 250);
  EXPECT_EQ(outcome.best, 1.0);
  EXPECT_EQ(outcome.last, 0.95);
}

TEST(OutcomeOfTest, TheFirstEvaluationIsNotLookedBehind) {
  const RunOutcome outcome = OutcomeOf({{10, 100, 0.95}, {20, 200, 0.99}}, kAccuracy);
  EXPECT_EQ(outcome.seconds, 10);
  EXPECT_TRUE(outcome.at_first);
  EXPECT_FALSE(OutcomeOf({{10, 100, 0.5}, {20, 200, 0.99}}, kAccuracy).at_first);
}

TEST(OutcomeOfTest, AMissHasTheRunsEnd) {
  const RunOutcome outcome = OutcomeOf({{10, 100, 0.5}, {20, 200, 0.8}}, kAccuracy);
  EXPECT_FALSE(outcome.reached);
  EXPECT_EQ(outcome.seconds, 20);
  EXPECT_EQ(outcome.best, 0.8);
}

TEST(OutcomeOfTest, OfALossLowerIsBetter) {
  const RunOutcome outcome = OutcomeOf({{10, 100, 2.0}, {20, 200, 1.0}}, {"loss", 1.5, false});
  EXPECT_TRUE(outcome.reached);
  EXPECT_DOUBLE_EQ(outcome.seconds, 15);
  EXPECT_EQ(outcome.best, 1.0);
}

TEST(OutcomeOfTest, WhatIsNotFiniteReachesNothing) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  const RunOutcome outcome = OutcomeOf({{10, 100, 0.5}, {20, 200, kNan}}, kAccuracy);
  EXPECT_FALSE(outcome.reached);
  EXPECT_FALSE(outcome.last.has_value());
  EXPECT_EQ(outcome.best, 0.5);
  EXPECT_EQ(outcome.seconds, 20);
  // Of a loss nothing is lower than a value that is none.
  const Target loss = {"loss", 0.3, false};
  EXPECT_EQ(OutcomeOf({{10, 100, kNan}, {20, 200, 2.0}}, loss).best, 2.0);
}

TEST(OutcomeOfTest, ARunThatReachesTheTargetAndThenDivergesIsAMiss) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  const RunOutcome outcome =
      OutcomeOf({{10, 100, 0.95}, {20, 200, 0.96}, {25, 250, kNan}}, kAccuracy);
  EXPECT_FALSE(outcome.reached);
  EXPECT_FALSE(outcome.last.has_value());
  EXPECT_EQ(outcome.seconds, 25);
  EXPECT_EQ(outcome.samples, 250);
}

}  // namespace
}  // namespace rubato
