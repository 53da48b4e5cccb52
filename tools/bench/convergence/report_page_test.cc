#include "tools/bench/convergence/report_page.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "common/base/json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Seven seeds in two modes on two clusters and at two computing times; async takes half the time
// and misses with seed 3.
class ReportPageTest : public ::testing::Test {
 protected:
  ReportPageTest() {
    study_.modes = {"sync", "async"};
    study_.baseline = "sync";
    study_.target = {"accuracy", 0.5, true};
    study_.compute = "3ms";
    study_.compute_scales = {1, 2};
    study_.seeds = 7;
    for (const int workers : {4, 8}) {
      for (size_t scale = 0; scale < 2; ++scale) {
        for (size_t mode = 0; mode < 2; ++mode) {
          for (int seed = 0; seed < 7; ++seed) Add(workers, scale, mode, seed);
        }
      }
    }
  }

  void Add(int workers, size_t scale, size_t mode, int seed) {
    DoneCell done;
    done.cell.mode = mode;
    done.cell.workers = workers;
    done.cell.scale = scale;
    done.cell.seed = seed;
    done.cell.name = absl::StrCat(study_.modes[mode], "-w", workers, "-c", scale, "-s", seed);
    const double end = (mode == 0 ? 100 : 50) * (scale == 0 ? 1 : 2);
    done.result.outcome = {end / 2 + seed, 500, !(mode == 1 && seed == 3), 0.9, 0.9};
    done.result.staleness = mode == 0 ? 0 : 1.25;
    if (mode == 1) done.result.staleness_counts = {10, 20, seed};
    done.result.workers = {{1.0 + seed, 2, 3}, {4, 5, 6}};
    cells_.push_back(done);
    curves_[done.cell.name] = {{end / 2, 500, 0.4 + 0.01 * seed, 50.0 * (mode + 1)},
                               {end, 1000, 0.8 + 0.01 * seed, 100.0 * (mode + 1)}};
  }

  std::string Page() const { return ReportPage(study_, cells_, curves_, command_); }

  static nlohmann::json DataOf(const std::string& page) {
    const std::string begin = "type=\"application/json\">";
    const size_t from = page.find(begin) + begin.size();
    return ParseJson(page.substr(from, page.find("</script>", from) - from));
  }

  Study study_;
  std::vector<DoneCell> cells_;
  CellCurves curves_;
  std::string command_ = "rubato bench convergence";
};

TEST_F(ReportPageTest, HoldsEveryRunOfEveryClusterAndComputingTime) {
  const nlohmann::json data = DataOf(Page());
  ASSERT_TRUE(data.is_object());
  EXPECT_EQ(data["title"], "Which mode reaches eval/accuracy of at least 0.5 first");
  EXPECT_THAT(data["conditions"], HasSubstr(" 3ms for a micro-batch"));
  ASSERT_EQ(data["groups"].size(), 4u);
  EXPECT_EQ(data["groups"][0]["workers"], 4);
  EXPECT_EQ(data["groups"][1]["scale"], 2);
  EXPECT_EQ(data["groups"][3]["workers"], 8);
  const nlohmann::json& async = data["groups"][0]["modes"][1];
  ASSERT_EQ(async["runs"].size(), 7u);
  EXPECT_EQ(async["runs"][3].dump(),
            R"({"last":0.9,"reached":false,"samples":500.0,"seconds":28.0,"seed":3,)"
            R"("staleness":1.25,"test":null})");
  EXPECT_EQ(async["runs"][4]["reached"], true);
  // As the report's table says.
  EXPECT_EQ(data["table"]["rows"][1][5], "6 of 7");
  EXPECT_EQ(data["table"]["rows"].size(), 8u);
  EXPECT_EQ(data["table"]["titles"].size(), data["table"]["rows"][0].size());
}

TEST_F(ReportPageTest, SumsStalenessAndTakesTheMeanOfWorkersTimes) {
  cells_[13].result.staleness_counts.push_back(1);  // seed 6 of async, staler by one
  cells_[1].result.workers.clear();                 // seed 1 of sync, of an older version
  const nlohmann::json modes = DataOf(Page())["groups"][0]["modes"];
  EXPECT_EQ(modes[0]["stalenessCounts"].dump(), "[]");
  EXPECT_EQ(modes[1]["stalenessCounts"].dump(), "[70,140,21,1]");
  EXPECT_EQ(modes[1]["workerSeconds"].dump(), "[[4.0,2.0,3.0],[4.0,5.0,6.0]]");
  EXPECT_NEAR(modes[0]["workerSeconds"][0][0].get<double>(), 4 + 1.0 / 3, 1e-6);
}

TEST_F(ReportPageTest, AScriptHasItsOwnTestAndNoSplits) {
  EXPECT_THAT(DataOf(Page())["finalNote"], HasSubstr("the validation split"));
  study_.target.is_script = true;
  EXPECT_EQ(DataOf(Page())["finalNote"], "By the script's own test, by which modes are judged.");
  EXPECT_THAT(Page(), Not(HasSubstr("the validation split")));
}

TEST_F(ReportPageTest, ItsVerdictsAreThoseOfTheReport) {
  const nlohmann::json data = DataOf(Page());
  EXPECT_THAT(data["verdicts"][0], HasSubstr(" (of sync 0 of 7): no verdict; train longer"));
  EXPECT_THAT(data["verdicts"][2], HasSubstr("No verdict flips"));
  EXPECT_THAT(data["certainty"], HasSubstr("Verdicts have 95 % confidence"));
}

TEST_F(ReportPageTest, SaysWhatBoundedBoundsWhereItIsCompared) {
  EXPECT_EQ(DataOf(Page())["boundNote"], "");
  study_.modes[1] = "bounded,staleness=3";
  EXPECT_THAT(DataOf(Page())["boundNote"], HasSubstr("ahead of the slowest when it begins one"));
}

TEST_F(ReportPageTest, BandsGoFromTheLeastRunToTheGreatestOverTimeSamplesAndUpdates) {
  const nlohmann::json data = DataOf(Page());
  const nlohmann::json& bands = data["groups"][0]["modes"][1]["bands"];
  EXPECT_EQ(bands["time"]["x"].front(), 25);
  EXPECT_EQ(bands["time"]["x"].back(), 50);
  EXPECT_EQ(bands["samples"]["x"].back(), 1000);
  EXPECT_EQ(bands["updates"]["x"].back(), 200);
  EXPECT_EQ(bands["time"]["low"].back(), 0.8);
  EXPECT_EQ(bands["time"]["middle"].back(), 0.83);
  EXPECT_EQ(bands["time"]["high"].back(), 0.86);
  EXPECT_EQ(bands["time"]["low"].front(), 0.4);
}

TEST_F(ReportPageTest, WithoutARunsCurveTheBandIsOfTheOthers) {
  curves_.erase("async-w4-c0-s0");
  for (Evaluation& at : curves_["sync-w4-c0-s6"]) at.updates = std::nan("");  // of an older version
  const nlohmann::json modes = DataOf(Page())["groups"][0]["modes"];
  EXPECT_EQ(modes[1]["curves"], 6);
  EXPECT_EQ(modes[1]["runs"].size(), 7u);
  EXPECT_EQ(modes[1]["bands"]["samples"]["low"].back(), 0.81);
  EXPECT_EQ(modes[0]["bands"]["updates"]["high"].back(), 0.85);
  EXPECT_EQ(modes[0]["bands"]["samples"]["high"].back(), 0.86);
}

TEST_F(ReportPageTest, FailedRunsAndTrialsOfLearningRates) {
  cells_[2].result.error = "no room";
  study_.learning_rates = {"0.1", "0.2"};
  for (size_t mode = 0; mode < 2; ++mode) {
    for (const std::string& rate : study_.learning_rates) {
      Add(4, 0, mode, 1000);
      cells_.back().cell.is_trial = true;
      cells_.back().cell.learning_rate = rate;
      cells_.back().result.outcome.seconds = rate == "0.1" ? 10 : 5;
      cells_.back().result.outcome.reached = mode == 1;
    }
  }
  const nlohmann::json data = DataOf(Page());
  EXPECT_EQ(data["groups"][0]["leftOut"].dump(), "[\"sync-w4-c0-s2: no room\"]");
  EXPECT_EQ(data["groups"][0]["modes"][0]["runs"].size(), 6u);
  ASSERT_EQ(data["rates"].size(), 2u);
  EXPECT_EQ(data["rates"][1]["taken"], 1);
  EXPECT_EQ(data["rates"][1]["trials"][0]["seconds"], 10);
  EXPECT_EQ(data["rates"][1]["trials"][0]["misses"], 0);
  EXPECT_EQ(data["rates"][0]["trials"][0]["misses"], 1);
  EXPECT_EQ(data["rates"][0]["trials"][0]["runs"], 1);
}

TEST_F(ReportPageTest, NothingThatItIsGivenEndsTheData) {
  const std::string evil = "</script><script>alert(1)</script>@SCRIPT@\xff";
  study_.modes[1] = evil;
  command_ = "rubato bench convergence " + evil;
  cells_[0].result.error = evil;
  study_.speeds = {evil};
  const std::string page = Page();
  EXPECT_THAT(page, Not(HasSubstr("<script>alert")));
  const nlohmann::json data = DataOf(page);
  ASSERT_TRUE(data.is_object());
  const std::string kept = "</script><script>alert(1)</script>@SCRIPT@\xef\xbf\xbd";
  EXPECT_EQ(data["modes"][1], kept);
  EXPECT_EQ(data["command"], "rubato bench convergence " + kept);
  EXPECT_EQ(data["groups"][0]["leftOut"][0], "sync-w4-c0-s0: " + kept);
}

// Of two modes on four and eight workers; then of six, whose workers on eight have 48 rows.
TEST_F(ReportPageTest, PicturesHaveRoomForEachRow) {
  const std::map<std::string, int> few = ChartHeights(study_, cells_);
  EXPECT_EQ(few.at("time-to-target"), 480);
  EXPECT_EQ(few.at("workers"), 240 + 17 * 16);
  EXPECT_EQ(few.count("rates"), 0u);
  study_.modes = {"sync", "async", "a", "b", "c", "d"};
  study_.learning_rates = {"0.1"};
  const std::map<std::string, int> more = ChartHeights(study_, cells_);
  EXPECT_EQ(more.at("time-to-target"), 600);
  // The names of six modes take two rows above a chart.
  EXPECT_EQ(more.at("curve-time"), 480 + 2 * 18);
  EXPECT_EQ(more.at("workers"), 240 + 17 * 48);
  EXPECT_EQ(more.at("rates"), 480 + 2 * 18);
}

TEST_F(ReportPageTest, IsWholeAndLoadsNothing) {
  const std::string page = Page();
  EXPECT_THAT(page, HasSubstr("Chart.js v"));
  EXPECT_THAT(page, HasSubstr("Permission is hereby granted, free of charge"));
  EXPECT_THAT(page, HasSubstr("Made by `rubato bench convergence`"));
  EXPECT_THAT(page, HasSubstr("default-src 'none'"));
  for (const char* loads : {" src=", "<link", "@import", "url(", "@BODY@", "@STYLE@"}) {
    EXPECT_THAT(page, Not(HasSubstr(loads)));
  }
}

TEST_F(ReportPageTest, OfAStudyInWhichNothingRan) {
  for (DoneCell& done : cells_) done.result.error = "no room";
  const nlohmann::json data = DataOf(Page());
  EXPECT_EQ(data["groups"][0]["modes"][0]["runs"].size(), 0u);
  EXPECT_EQ(data["table"]["rows"].size(), 0u);
  EXPECT_THAT(data["verdicts"][0], HasSubstr("there is nothing to compare"));
}

}  // namespace
}  // namespace rubato
