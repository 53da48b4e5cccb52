#include "tools/bench/convergence/report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/bench/convergence/tables.h"

namespace rubato {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// Ten seeds, of which async takes half the time and ends a little worse.
class ReportTest : public ::testing::Test {
 protected:
  ReportTest() {
    study_.modes = {"sync", "async"};
    study_.baseline = "sync";
    study_.target = {"accuracy", 0.9, true};
    for (size_t mode = 0; mode < 2; ++mode) {
      for (int seed = 0; seed < 10; ++seed) {
        CellResult result;
        const double last = mode == 0 ? 0.95 : 0.93 - 0.001 * seed;
        result.outcome = {(mode == 0 ? 100.0 : 50.0) + seed, 1000, true, last, last};
        result.end_seconds = 200;
        result.updates = 20;
        result.staleness = 0;
        result.test = last - 0.01;
        result.digest = "d1";
        DoneCell done = {{}, result};
        done.cell.mode = mode;
        done.cell.workers = 4;
        done.cell.seed = seed;
        done.cell.name = absl::StrCat(study_.modes[mode], "-w4-s", seed);
        cells_.push_back(done);
      }
    }
  }

  Study study_;
  std::vector<DoneCell> cells_;
};

TEST_F(ReportTest, SaysWhichIsFasterAndWorse) {
  EXPECT_THAT(Verdicts(study_, cells_),
              ElementsAre(AllOf(HasSubstr("With 4 workers async is faster than sync by 1."),
                                HasSubstr("times; at the end its accuracy is worse by 0.02"))));
  EXPECT_THAT(
      ReportMarkdown(study_, cells_, "rubato bench convergence"),
      AllOf(
          HasSubstr("first\n\nIn virtual time: speeds fixed, "),
          HasSubstr("| sync | 4 | baseline | 1 | 0 | 10 of 10 | 104.5 | 1000 | 0.95 | 0.94 | 0 |"),
          HasSubstr("\n    rubato bench convergence\n")));
}

TEST_F(ReportTest, SaysThatWorkersAreIdleInSync) {
  study_.micro_batches = 4;
  EXPECT_THAT(Verdicts(study_, cells_), ElementsAre(HasSubstr("faster")));
  study_.micro_batches = 3;
  const std::string said =
      "1 of 4 workers have nothing to compute in sync, since train.micro_batches is 3: that is "
      "part of the verdict.";
  EXPECT_THAT(Verdicts(study_, cells_), ElementsAre(HasSubstr("faster"), said));
  EXPECT_THAT(ReportMarkdown(study_, cells_, ""), HasSubstr(said));
  study_.modes = {"bounded,staleness=2", "async@10%+sync"};
  study_.baseline = study_.modes[0];
  EXPECT_THAT(Verdicts(study_, cells_), testing::Contains(said));
  study_.modes[1] = "async";
  EXPECT_THAT(Verdicts(study_, cells_), Not(testing::Contains(said)));
}

// The two numbers behind `before`.
std::pair<double, double> IntervalBehind(const std::string& before, const std::string& sentence) {
  std::pair<double, double> interval = {0, 0};
  const size_t at = sentence.find(before);
  EXPECT_NE(at, sentence.npos) << sentence;
  if (at == sentence.npos) return interval;
  EXPECT_EQ(std::sscanf(sentence.c_str() + at + before.size(), " %lf to %lf", &interval.first,
                        &interval.second),
            2)
      << sentence;
  return interval;
}

// No mean of the seeds' ratios and differences is outside of them.
TEST_F(ReportTest, IntervalsLieWithinWhatTheSeedsHave) {
  const auto expect_within = [&](const std::string& before, double least, double greatest) {
    const auto [low, high] = IntervalBehind(before, Verdicts(study_, cells_)[0]);
    EXPECT_GE(low, least);
    EXPECT_LT(low, high);
    EXPECT_LE(high, greatest);
  };
  for (int seed = 0; seed < 10; ++seed) {
    cells_[10 + seed].result.outcome.seconds = (100.0 + seed) / (1.6 + 0.05 * seed);
  }
  expect_within("is faster than sync by", 1.6, 2.05);
  expect_within("its accuracy is worse by", 0.02, 0.029);
  for (int seed = 0; seed < 10; ++seed) {
    cells_[10 + seed].result.outcome.seconds = (100.0 + seed) * (1.6 + 0.05 * seed);
    cells_[10 + seed].result.outcome.last = 0.96 + 0.001 * seed;
  }
  expect_within("is slower than sync by", 1.6, 2.05);
  expect_within("its accuracy is better by", 0.01, 0.019);
}

TEST_F(ReportTest, NamesSeedsThatNeedSuspiciouslyFewSamples) {
  for (DoneCell& done : cells_) done.cell.seed += 20;
  EXPECT_THAT(Verdicts(study_, cells_)[0], Not(HasSubstr("suspicious")));
  cells_[17].result.outcome.samples = 900;
  EXPECT_THAT(Verdicts(study_, cells_)[0],
              HasSubstr("It needs suspiciously few samples with seeds 27: fewer than sync's mean"));
}

TEST_F(ReportTest, SaysOfHowManyRunsATargetIsTooEasyOrTooHard) {
  for (const int cell : {2, 13, 14, 15}) cells_[cell].result.outcome.at_first = true;
  EXPECT_THAT(Verdicts(study_, cells_)[0],
              HasSubstr("async reaches eval/accuracy of at least 0.9 by the first evaluation in 3 "
                        "of 10 runs (sync in 1), so when is not known: set a harder target, or "
                        "more --evaluations"));
  for (DoneCell& done : cells_) done.result.outcome.at_first = false;
  for (const int cell : {2, 3, 4, 15}) cells_[cell].result.outcome.reached = false;
  EXPECT_THAT(Verdicts(study_, cells_)[1],
              HasSubstr("async reaches eval/accuracy of at least 0.9 in 9 of 10 runs; sync, with "
                        "which it would be compared, in 7: train longer or set an easier target"));
}

// Whoever misses gets the advice.
TEST_F(ReportTest, AModeIsNotSlowerThanABaselineThatDiverged) {
  cells_[3].result.outcome.reached = false;
  cells_[3].result.outcome.last.reset();
  for (int i = 10; i < 20; ++i) cells_[i].result.outcome.seconds += 200;
  EXPECT_THAT(Verdicts(study_, cells_)[1],
              HasSubstr("times as fast as sync, but 0 of 10 runs missed the target (of sync 1 of "
                        "10): no verdict; set a lower learning rate"));
}

TEST_F(ReportTest, OfWhatCannotBeToldItSaysHowManyMiss) {
  for (int seed = 0; seed < 10; ++seed) {
    cells_[10 + seed].result.outcome.seconds = (100.0 + seed) * (seed % 2 == 0 ? 0.9 : 1.1);
  }
  cells_[13].result.outcome.reached = false;
  EXPECT_THAT(Verdicts(study_, cells_)[0],
              AllOf(HasSubstr("cannot be told from sync: its speed is 0.9"),
                    HasSubstr(" of that, and 1 of 10 runs miss the target; train longer")));
}

// The geometric mean of the seeds' ratios, which is not the ratio of the medians.
TEST_F(ReportTest, TheTableHasPairedDifferencesApartFromMedians) {
  double logarithms = 0;
  for (int seed = 0; seed < 10; ++seed) {
    logarithms += std::log((100.0 + seed) / (50.0 + seed)) / 10;
  }
  EXPECT_THAT(
      ReportMarkdown(study_, cells_, ""),
      AllOf(HasSubstr("| mode | workers | verdict | times as fast as sync | accuracy better by | "
                      "runs that reach it | seconds |"),
            HasSubstr(absl::StrFormat("| async | 4 | faster | %.2f (1.8", std::exp(logarithms))),
            HasSubstr("| -0.0245 (-0.0"),
            HasSubstr("compare each run with that of sync with the same seed"),
            HasSubstr("the difference of two medians may lie outside the interval")));
}

TEST_F(ReportTest, MediansOfTimesLeaveMissesOut) {
  cells_[3].result.outcome.reached = false;
  cells_[3].result.outcome.seconds = 900;
  cells_[3].result.outcome.samples = 9000;
  cells_[4].result.outcome.samples = 1002;
  EXPECT_THAT(ReportMarkdown(study_, cells_, ""),
              HasSubstr("| sync | 4 | baseline | 1 | 0 | 9 of 10 | 105 | 1000 |"));
}

TEST_F(ReportTest, SaysUnderWhichConditionsTimesHold) {
  study_.compute = "3ms";
  study_.apply = "2GB";
  study_.latency = "1ms";
  study_.bandwidth = "5Gbit";
  EXPECT_THAT(ReportMarkdown(study_, cells_, ""),
              HasSubstr("speeds fixed, 3ms for a micro-batch, 2GB a second that a shard sums and "
                        "applies, 1ms of latency, 5Gbit a machine."));
}

// Two modes share the 5 %, so one of them is judged at 2.5 % and the other at 5 %.
TEST_F(ReportTest, SaysOneConfidenceForAllModes) {
  study_.modes.push_back("bounded,staleness=3");
  for (size_t i = 0; i < 10; ++i) {
    DoneCell done = cells_[i];
    done.cell.mode = 2;
    done.result.outcome.seconds *= 0.9 + 0.001 * static_cast<double>(i);
    cells_.push_back(done);
  }
  const std::string report = ReportMarkdown(study_, cells_, "");
  EXPECT_THAT(report, HasSubstr("Verdicts have 95 % confidence, those on times"));
  EXPECT_THAT(report, HasSubstr("bounded,staleness=3 is faster than sync by 1.1"));
  EXPECT_THAT(report, Not(HasSubstr("97.5")));
  cells_.resize(13);  // three seeds of sync and async alone
  study_.modes.pop_back();
  cells_.erase(cells_.begin() + 3, cells_.begin() + 10);
  EXPECT_THAT(ReportMarkdown(study_, cells_, ""),
              AllOf(HasSubstr("| async | 4 | too few seeds | – | –"), Not(HasSubstr("Verdicts"))));
}

// A mode that is faster by less than half a percent is not faster "by 1.00 times".
TEST_F(ReportTest, AnIntervalShowsOnWhichSideOf1ItIs) {
  for (size_t i = 0; i < 10; ++i) {
    cells_[10 + i].result.outcome.seconds =
        cells_[i].result.outcome.seconds * (0.994 + 0.0006 * static_cast<double>(i));
  }
  EXPECT_THAT(Verdicts(study_, cells_)[0], HasSubstr("is faster than sync by 1.00"));
  EXPECT_THAT(Verdicts(study_, cells_)[0], Not(HasSubstr("by 1.00 to")));
}

TEST_F(ReportTest, SaysThatTheBaselineMisses) {
  for (int seed = 0; seed < 3; ++seed) {
    cells_[seed].result.outcome.reached = false;
    cells_[seed].result.outcome.best = 0.8 + 0.01 * seed;
  }
  EXPECT_THAT(
      Verdicts(study_, cells_)[0],
      "With 4 workers sync, the baseline, does not reach eval/accuracy of at least 0.9 in 3 "
      "of 10 runs; the nearest is 0.82. So no mode is called slower.");
  cells_[2].result.outcome.last.reset();
  EXPECT_THAT(Verdicts(study_, cells_)[0],
              HasSubstr("in 3 of 10 runs, 1 of which diverge; the nearest is 0.81. So"));
  for (int seed = 0; seed < 3; ++seed) cells_[seed].result.outcome.last.reset();
  EXPECT_THAT(Verdicts(study_, cells_)[0], HasSubstr("in 3 of 10 runs, 3 of which diverge. So"));
}

TEST_F(ReportTest, TheVerdictIsRepeatedAtOtherComputingTimes) {
  const auto repeat = [this](size_t scale, double seconds_of_async) {
    for (size_t i = 0; i < 20; ++i) {
      DoneCell done = cells_[i];
      done.cell.scale = scale;
      if (done.cell.mode == 1) done.result.outcome.seconds = seconds_of_async + done.cell.seed;
      cells_.push_back(done);
    }
  };
  repeat(1, 60);
  repeat(2, 40);
  EXPECT_THAT(Verdicts(study_, cells_),
              ElementsAre(HasSubstr("async is faster than sync"),
                          "No verdict flips at 0.5 or 2 times the computing time."));
  for (DoneCell& done : cells_) {
    if (done.cell.scale == 2 && done.cell.mode == 1) done.result.outcome.seconds += 200;
  }
  EXPECT_THAT(Verdicts(study_, cells_),
              ElementsAre(HasSubstr("async is faster than sync"),
                          HasSubstr("The verdict flips: With 4 workers and 2 times the computing "
                                    "time async is slower than sync by")));
  EXPECT_THAT(ResultsJsonl(study_, cells_), HasSubstr("\"compute_scale\":2.0,\"seed\":0"));
}

// At the second speeds async is as fast as sync.
TEST_F(ReportTest, EachOfTheSpeedsHasAVerdict) {
  study_.speeds = {"fixed", "exponential"};
  for (size_t i = 0; i < 20; ++i) {
    DoneCell done = cells_[i];
    done.cell.speeds = 1;
    if (done.cell.mode == 1) done.result.outcome.seconds += done.cell.seed % 2 == 0 ? 60 : 40;
    cells_.push_back(done);
  }
  EXPECT_THAT(
      Verdicts(study_, cells_),
      ElementsAre(HasSubstr("With 4 workers at speeds fixed async is faster than sync by"),
                  HasSubstr("With 4 workers at speeds exponential async cannot be told from")));
  EXPECT_THAT(
      ResultsJsonl(study_, cells_),
      HasSubstr("{\"mode\":\"async\",\"workers\":4,\"speeds\":\"exponential\",\"seed\":9,"));
  EXPECT_THAT(ResultsCsv(study_, cells_), HasSubstr("\n\"async\",4,\"exponential\",1,9,"));
  EXPECT_THAT(ReportMarkdown(study_, cells_, ""),
              AllOf(HasSubstr("speeds fixed and exponential, "),
                    HasSubstr("| sync | 4, exponential | baseline | 1 | 0 | 10 of 10 |")));
}

TEST_F(ReportTest, AFastModeWhoseRunsMissTheTargetHasNoVerdict) {
  cells_[3].result.outcome.reached = false;
  cells_[14].result.outcome.reached = false;
  EXPECT_THAT(Verdicts(study_, cells_)[1],
              AllOf(HasSubstr("With 4 workers async was 1."),
                    HasSubstr(" times as fast as sync, but 1 of 10 runs missed "
                              "the target (of sync 1 of 10): no verdict; train longer or set an "
                              "easier target"),
                    Not(HasSubstr("cannot be told"))));
  for (int i = 10; i < 20; ++i) cells_[i].result.outcome.reached = false;
  EXPECT_THAT(Verdicts(study_, cells_)[1],
              AllOf(HasSubstr("does not reach "), HasSubstr("; train longer or set an easier")));
}

// Of three seeds nothing is judged, at no computing time.
TEST_F(ReportTest, WhatIsNotJudgedDoesNotFlipAndDoesNotStay) {
  cells_.erase(cells_.begin() + 13, cells_.end());
  cells_.erase(cells_.begin() + 3, cells_.begin() + 10);
  const std::vector<DoneCell> first = cells_;
  for (DoneCell done : first) {
    done.cell.scale = 1;
    cells_.push_back(done);
  }
  EXPECT_THAT(Verdicts(study_, cells_), ElementsAre(HasSubstr("cannot be judged by 3 seeds")));
}

// At half the computing time so many seeds fail that there is no verdict that could have flipped.
TEST_F(ReportTest, AVerdictThatIsNotRepeatedHasNotFlipped) {
  const std::vector<DoneCell> first = cells_;
  for (DoneCell done : first) {
    done.cell.scale = 1;
    if (done.cell.seed > 2) done.result.error = "no room";
    cells_.push_back(done);
  }
  EXPECT_THAT(Verdicts(study_, cells_), ElementsAre(HasSubstr("async is faster than sync")));
}

TEST_F(ReportTest, ASeedWithACellThatFailedIsLeftOutAndNamed) {
  cells_[3].result.error = "no room";
  EXPECT_THAT(ReportMarkdown(study_, cells_, ""),
              AllOf(HasSubstr("| sync | 4 | baseline | 1 | 0 | 9 of 9 |"),
                    HasSubstr("Left out: sync-w4-s3: no room\n")));
}

TEST_F(ReportTest, NothingToCompare) {
  for (DoneCell& cell : cells_) cell.result.error = "no room";
  EXPECT_THAT(Verdicts(study_, cells_), ElementsAre(HasSubstr("there is nothing to compare")));
}

TEST_F(ReportTest, ResultsComeBackAsTheyWere) {
  for (const DoneCell& cell : cells_) {
    const std::string text = ResultJson(cell.result);
    const absl::StatusOr<CellResult> again = ParseResult(text);
    RUBATO_ASSERT_OK(again);
    EXPECT_EQ(ResultJson(*again), text);
  }
  CellResult failed;
  failed.error = "a \"reason\"";
  const absl::StatusOr<CellResult> again = ParseResult(ResultJson(failed));
  RUBATO_ASSERT_OK(again);
  EXPECT_EQ(again->error, failed.error);
  EXPECT_THAT(ParseResult("{"), IsError(absl::StatusCode::kDataLoss, HasSubstr("no number")));
  EXPECT_THAT(ParseResult("{\"seconds\":\"x\"}"),
              IsError(absl::StatusCode::kDataLoss, HasSubstr("no number")));
}

TEST_F(ReportTest, LinesAndCsv) {
  EXPECT_THAT(ResultsJsonl(study_, cells_),
              HasSubstr("{\"mode\":\"async\",\"workers\":4,\"seed\":9,\"reached\":true,\"seconds\":"
                        "59.0,\"samples\":1000.0,"));
  EXPECT_THAT(ResultsCsv(study_, cells_), HasSubstr("\n\"async\",4,\"fixed\",1,9,,0,1,59,1000,"));
  cells_[0].result.workers = {{3, 1, 2}, {5, 1, 0}};
  cells_[0].result.diverged = "the loss is \"inf\"";
  cells_[1].result.error = "no room";
  for (const absl::string_view line : absl::StrSplit(ResultsCsv(study_, cells_), '\n')) {
    EXPECT_TRUE(line.empty() || std::count(line.begin(), line.end(), ',') == 19) << line;
  }
  EXPECT_THAT(ResultsCsv(study_, cells_), HasSubstr(",8,2,\"the loss is \"\"inf\"\"\",\n"));
}

TEST_F(ReportTest, StalenessIsCountedOverTheSeedsThatAreJudged) {
  for (DoneCell& done : cells_) {
    if (done.cell.mode == 0) continue;
    done.result.staleness_counts.assign(65, 0);
    done.result.staleness_counts[0] = 5;
    done.result.staleness_counts[7] = 2;
    done.result.staleness_counts[4] = 2;
    done.result.staleness_counts[64] = 1;
  }
  cells_[12].result.error = "no room";
  DoneCell other = cells_[11];
  other.result.staleness_counts = {1000000};
  other.cell.scale = 1;
  cells_.push_back(other);
  const std::string table = StalenessMarkdown(study_, cells_);
  EXPECT_THAT(table, HasSubstr("| 3 | 4–7 | 8–15 | 16–31 | 32–63 | 64 and more |\n"));
  EXPECT_THAT(table, HasSubstr("| async | 4 | 50 |  |  |  | 40 |  |  |  | 10 |\n"));
  EXPECT_THAT(table, Not(HasSubstr("sync | 4 | 0")));
  EXPECT_THAT(table, Not(HasSubstr("bounded")));
  EXPECT_THAT(ReportMarkdown(study_, cells_, ""), HasSubstr(table));
}

// Without it a staleness of 5 under `bounded,staleness=3` looks like a fault.
TEST_F(ReportTest, SaysWhatBoundedBounds) {
  study_.modes[1] = "sync@25%+bounded,staleness=3";
  cells_[10].result.staleness_counts = {0, 0, 0, 0, 0, 1};
  EXPECT_THAT(
      StalenessMarkdown(study_, cells_),
      HasSubstr("limits by how many contributions a worker may be ahead of the slowest when "
                "it begins one, not this figure"));
}

TEST_F(ReportTest, TimesAreSharesOfAllWorkers) {
  EXPECT_EQ(TimesMarkdown(study_, cells_), "");
  for (DoneCell& done : cells_) {
    if (done.cell.mode == 0) done.result.workers = {{8, 1, 1}, {2, 1, 7}};
  }
  const std::string table = TimesMarkdown(study_, cells_);
  EXPECT_THAT(table, HasSubstr("| sync | 4 | 50 | 20 to 80 | 10 | 40 |\n"));
  EXPECT_THAT(ReportMarkdown(study_, cells_, ""), HasSubstr(table));
  // Real workers do not tell what they send.
  study_.processes = true;
  EXPECT_THAT(TimesMarkdown(study_, cells_), HasSubstr("| 20 to 80 | in waiting | 40 |\n"));
}

TEST_F(ReportTest, SaysWhereTimesOfRealProcessesAreOfContention) {
  study_.processes = study_.target.is_script = true;
  const auto with_busy = [&](std::optional<double> share) {
    for (DoneCell& cell : cells_) cell.result.busy = share;
    return Verdicts(study_, cells_).back();
  };
  EXPECT_THAT(with_busy(0.69), HasSubstr("async is faster than sync"));
  EXPECT_THAT(with_busy(std::nullopt), HasSubstr("async is faster than sync"));
  EXPECT_THAT(
      with_busy(0.71),
      AllOf(HasSubstr("Do not trust the times: the cores of this machine were busy for 71 % "
                      "of them, so processes waited"),
            HasSubstr("Samples to the target and the metric at the end depend on times "
                      "only by the staleness")));
  EXPECT_THAT(ReportMarkdown(study_, cells_, "rubato bench convergence"),
              AllOf(HasSubstr("\n* Do not trust the times"),
                    HasSubstr("the script's libraries, which are not known")));
  study_.target.is_script = false;
  EXPECT_THAT(Verdicts(study_, cells_).back(), HasSubstr("Do not trust the times"));
  study_.processes = false;  // virtual times
  EXPECT_THAT(Verdicts(study_, cells_), ::testing::SizeIs(1));
}

class ReadCellTest : public ::testing::Test {
 protected:
  ReadCellTest() : folder_(::testing::TempDir() + "/run") {
    std::filesystem::create_directories(folder_);
    Write("metrics.jsonl",
          "{\"kind\":\"train\",\"step\":1,\"samples\":50,\"time\":5,\"loss\":1}\n"
          "{\"kind\":\"eval\",\"step\":1,\"samples\":50,\"time\":5,\"loss\":1,"
          "\"accuracy\":0.9}\n");
  }

  void Write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ + "/" + name) << text;
  }

  const std::string folder_;
  const Target target_ = {"accuracy", 0.7, true};
};

TEST_F(ReadCellTest, HasWhatTheSummaryTells) {
  Write("summary.json",
        "{\"seconds\":8,\"digest\":\"d\",\"test_accuracy\":0.8,\"staleness_counts\":[3,1],"
        "\"workers\":[{\"computing_seconds\":5,\"sending_seconds\":1,\"waiting_seconds\":2}],"
        "\"blocks\":[{\"updates\":4,\"staleness_sum\":1}]}");
  const absl::StatusOr<CellResult> result = ReadCell(folder_, target_);
  RUBATO_ASSERT_OK(result);
  EXPECT_EQ(result->diverged, "");
  EXPECT_THAT(result->outcome.last, ::testing::Optional(0.9));
  EXPECT_THAT(result->test, ::testing::Optional(0.8));
  EXPECT_EQ(result->end_seconds, 8);
  EXPECT_EQ(result->staleness, 0.25);
  // And keeps it as a line.
  const std::string line = ResultJson(*result);
  EXPECT_THAT(line, HasSubstr("\"staleness_counts\":[3,1],\"workers\":[[5.0,1.0,2.0]],"));
  const absl::StatusOr<CellResult> again = ParseResult(line);
  RUBATO_ASSERT_OK(again);
  EXPECT_EQ(ResultJson(*again), line);
}

// A script has one test, which it runs at the end, too.
TEST_F(ReadCellTest, AScriptsTestAtTheEndIsItsLastEvaluation) {
  Write("metrics.jsonl",
        "{\"kind\":\"train\",\"step\":1,\"samples\":50,\"time\":5,\"loss\":1}\n"
        "{\"kind\":\"eval\",\"step\":1,\"samples\":50,\"time\":5,\"accuracy\":0.5}\n"
        "{\"kind\":\"train\",\"step\":2,\"samples\":100,\"time\":10,\"loss\":1}\n"
        "{\"kind\":\"test\",\"step\":2,\"samples\":100,\"time\":11,\"accuracy\":0.9}\n");
  Write("summary.json", "{\"seconds\":10,\"digest\":\"d\",\"test_accuracy\":0.9}");
  const absl::StatusOr<CellResult> result =
      ReadCell(folder_, {"accuracy", 0.7, true, /*is_script=*/true});
  RUBATO_ASSERT_OK(result);
  EXPECT_DOUBLE_EQ(result->outcome.samples, 75);
  EXPECT_DOUBLE_EQ(result->outcome.seconds, 7.5);
  EXPECT_THAT(result->outcome.last, ::testing::Optional(0.9));
  EXPECT_EQ(result->test, std::nullopt);
  EXPECT_THAT(ReadCell(folder_, {"loss", 0.3, false, /*is_script=*/true}),
              IsError(absl::StatusCode::kFailedPrecondition,
                      HasSubstr("no eval/loss before its end: expected that job.evaluate")));
}

TEST_F(ReadCellTest, ADivergedRunSaysSoInItsSummary) {
  Write("summary.json", "{\"seconds\":8,\"digest\":\"\",\"diverged\":\"step 7: the loss is nan\"}");
  const absl::StatusOr<CellResult> result = ReadCell(folder_, target_);
  RUBATO_ASSERT_OK(result);
  EXPECT_EQ(result->diverged, "step 7: the loss is nan");
  EXPECT_EQ(result->outcome.last, std::nullopt);
  EXPECT_FALSE(result->outcome.reached);  // though it had come to the target
  EXPECT_EQ(result->outcome.seconds, 8);
  EXPECT_EQ(result->outcome.samples, 50);
  EXPECT_EQ(result->end_seconds, 8);
  EXPECT_THAT(ResultJson(*result), HasSubstr("\"diverged\":\"step 7: the loss is nan\""));
  Write("summary.json", "{}");
  EXPECT_EQ(ReadCell(folder_, target_)->outcome.last, std::optional<double>(0.9));
}

TEST_F(ReadCellTest, OneThatDivergesBeforeItsFirstEvaluationIsAMiss) {
  Write("metrics.jsonl", "");
  Write("summary.json", "{\"seconds\":3,\"diverged\":\"step 1: the loss is inf\"}");
  const absl::StatusOr<CellResult> result = ReadCell(folder_, target_);
  RUBATO_ASSERT_OK(result);
  EXPECT_FALSE(result->outcome.reached);
  EXPECT_EQ(result->outcome.seconds, 3);
  Write("summary.json", "{\"diverged\":\"step 1: the loss is inf\"}");
  EXPECT_GT(ReadCell(folder_, target_)->outcome.seconds, 0);  // its logarithm is a number
}

// Evaluated at 100 and 200 samples; the line of training at 150 samples says when half of it was
// done. That the evaluation itself was told of later does not matter.
TEST(OutcomeOfTest, TrainingTimeIsThatOfTheLinesAroundIt) {
  const RunCurves curves = ParseCurves(
      "{\"kind\":\"train\",\"step\":1,\"samples\":50,\"time\":5,\"loss\":1}\n"
      "{\"kind\":\"eval\",\"step\":2,\"samples\":100,\"time\":90,\"loss\":1,\"accuracy\":0.5}\n"
      "{\"kind\":\"train\",\"step\":3,\"samples\":150,\"time\":25,\"loss\":1}\n"
      "{\"kind\":\"train\",\"step\":4,\"samples\":200,\"time\":30,\"loss\":1}\n"
      "{\"kind\":\"eval\",\"step\":4,\"samples\":200,\"time\":99,\"loss\":1,\"accuracy\":0.9}\n");
  const Target target = {"accuracy", 0.7, true};
  const absl::StatusOr<std::vector<Evaluation>> evaluations = EvaluationsOf(curves, target);
  RUBATO_ASSERT_OK(evaluations);
  const RunOutcome outcome = OutcomeOf(*evaluations, target);
  // 15 s at 100 samples, 30 s at 200; the target lies in the middle.
  EXPECT_DOUBLE_EQ(outcome.seconds, 22.5);
  EXPECT_DOUBLE_EQ(outcome.samples, 150);
  EXPECT_THAT(EvaluationsOf(RunCurves(), target),
              IsError(absl::StatusCode::kFailedPrecondition, HasSubstr("no eval/accuracy")));
}

// The last test of a script tells another figure alone: that is no miss.
TEST(OutcomeOfTest, ALastTestWithoutTheMetricIsNone) {
  const RunCurves curves = ParseCurves(
      "{\"kind\":\"train\",\"step\":1,\"samples\":100,\"time\":10,\"loss\":1}\n"
      "{\"kind\":\"eval\",\"step\":1,\"samples\":100,\"time\":11,\"loss\":1,\"accuracy\":0.5}\n"
      "{\"kind\":\"train\",\"step\":2,\"samples\":200,\"time\":20,\"loss\":1}\n"
      "{\"kind\":\"eval\",\"step\":2,\"samples\":200,\"time\":21,\"loss\":1,\"accuracy\":0.9}\n"
      "{\"kind\":\"test\",\"step\":2,\"samples\":200,\"time\":22,\"loss\":1,\"f1\":0.9}\n");
  const Target target = {"accuracy", 0.7, true, /*is_script=*/true};
  const absl::StatusOr<std::vector<Evaluation>> evaluations = EvaluationsOf(curves, target);
  RUBATO_ASSERT_OK(evaluations);
  EXPECT_TRUE(OutcomeOf(*evaluations, target).reached);
}

TEST(OutcomeOfTest, AScriptThatLogsNoLossTellsNoTimes) {
  const RunCurves curves = ParseCurves(
      "{\"kind\":\"eval\",\"step\":1,\"samples\":100,\"time\":11,\"loss\":1,\"accuracy\":0.5}\n");
  EXPECT_THAT(EvaluationsOf(curves, {"accuracy", 0.7, true, /*is_script=*/true}),
              IsError(absl::StatusCode::kFailedPrecondition, HasSubstr("calls job.log")));
}

}  // namespace
}  // namespace rubato
