#include "worker/trainer/progress_reports.h"

#include <nlohmann/json.hpp>

#include "gtest/gtest.h"

namespace rubato {
namespace {

using Json = nlohmann::json;

// Moved by hand.
class ProgressReportsTest : public ::testing::Test {
 protected:
  void Compute(double done, int64_t step) {
    TrainingFigures figures;
    figures.done = done;
    figures.epoch = 2 * done;
    figures.step = step;
    figures.workers = 4;
    figures.loss = 0.25;
    reports_.OnFigures(figures, now_);
  }
  // The status of the request that is due now; null: none.
  Json Status() {
    const std::optional<std::string> body = reports_.Next(now_, absl::FromUnixSeconds(1700000000));
    return body.has_value() ? Json::parse(*body)["trainerStatus"] : Json();
  }

  ProgressReports reports_;
  absl::Time now_ = absl::UnixEpoch() + absl::Hours(1);
};

TEST_F(ProgressReportsTest, SaysWhatTheTrainersTypeHas) {
  Compute(0.125, 10);
  EXPECT_EQ(Status(), Json::parse(R"({"progressPercentage": 12,
      "metrics": [{"name": "epoch", "value": "0.25"}, {"name": "step", "value": "10"},
                  {"name": "workers", "value": "4"}, {"name": "loss", "value": "0.25"}],
      "lastUpdatedTime": "2023-11-14T22:13:20Z"})"));
}

TEST_F(ProgressReportsTest, SaysTheLatestAtMostEveryFiveSeconds) {
  EXPECT_EQ(reports_.due(), absl::InfiniteFuture());
  EXPECT_TRUE(Status().is_null());
  Compute(0.1, 1);
  EXPECT_FALSE(Status().is_null());
  EXPECT_EQ(reports_.due(), absl::InfiniteFuture());  // nothing is new
  int said = 0;
  for (int tenth = 0; tenth < 100; ++tenth) {
    Compute(0.2, 100 + tenth);
    now_ += absl::Milliseconds(100);
    const Json status = Status();
    if (status.is_null()) continue;
    ++said;
    EXPECT_EQ(status["metrics"][1]["value"], std::to_string(100 + tenth));
  }
  EXPECT_EQ(said, 2);
}

TEST_F(ProgressReportsTest, EstimatesByThePaceSinceItsBeginning) {
  Compute(0.2, 20);
  EXPECT_FALSE(Status().contains("estimatedRemainingSeconds"));
  now_ += absl::Seconds(60);
  Compute(0.5, 50);  // 0.3 in a minute: 100 s for the other half
  EXPECT_EQ(Status()["estimatedRemainingSeconds"], 100);
  now_ += absl::Seconds(60);
  Compute(0.1, 10);  // it went back to a checkpoint
  EXPECT_FALSE(Status().contains("estimatedRemainingSeconds"));
  now_ += absl::Seconds(10);
  Compute(0.2, 20);
  EXPECT_EQ(Status()["estimatedRemainingSeconds"], 80);
}

TEST_F(ProgressReportsTest, OnlyTheEndIsAHundred) {
  Compute(1, 100);
  EXPECT_EQ(Status()["progressPercentage"], 99);
  reports_.OnDone();
  EXPECT_TRUE(Status().is_null());
  EXPECT_EQ(reports_.due(), now_ + absl::Seconds(5));
  now_ += absl::Seconds(5);
  const Json status = Status();
  EXPECT_EQ(status["progressPercentage"], 100);
  EXPECT_EQ(status["estimatedRemainingSeconds"], 0);
}

TEST_F(ProgressReportsTest, AJobThatEndsByTimeHasNoShareAndALossMayBeNone) {
  TrainingFigures figures;
  figures.step = 3;
  figures.loss = std::nan("");
  reports_.OnFigures(figures, now_);
  const Json status = Status();
  EXPECT_FALSE(status.contains("progressPercentage"));
  EXPECT_FALSE(status.contains("estimatedRemainingSeconds"));
  EXPECT_EQ(status["metrics"].size(), 3);
}

}  // namespace
}  // namespace rubato
