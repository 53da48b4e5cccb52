#include "server/run/metrics.h"

#include <cmath>
#include <optional>

#include "common/space/modes.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

constexpr int64_t kEpoch = 100;  // samples: batches of 40, 40 and 20, of two micro-batches each

class MetricsTest : public testing::Test {
 protected:
  MetricsTest() {
    job_.mutable_train()->set_batch_size(40);
    job_.mutable_train()->mutable_until()->set_epochs(3);
    job_.mutable_metrics()->mutable_every()->set_steps(1);
    job_.mutable_optimizer()->set_learning_rate(0.1);
  }

  Metrics Begun(bool sync) const {
    Metrics metrics(job_, kEpoch, now_, now_);
    proto::View view;
    view.set_leaves(2);
    *view.mutable_mode() = sync ? SyncMode() : AsyncMode();
    std::vector<MetricsLine> none;
    metrics.Begin(BuiltInPolicy(view), view.mode(), SampleSchedule(kEpoch, 40, 2), 0, 0, 0, &none);
    EXPECT_TRUE(none.empty());
    return metrics;
  }

  // Loss 1 and 2 a sample.
  static proto::Progress Told(int64_t unit, int64_t leaf, int64_t samples) {
    proto::Progress progress;
    progress.set_unit(unit);
    progress.set_first_leaf(leaf);
    progress.add_loss_sum(static_cast<double>((leaf + 1) * samples));
    progress.add_samples(samples);
    return progress;
  }

  proto::Job job_;
  const absl::Time now_ = absl::UnixEpoch();
  std::vector<MetricsLine> lines_;
};

TEST_F(MetricsTest, StepsThatOneWhoIsLostHasNotToldOfCountWithTheLossOfTheOthers) {
  Metrics metrics = Begun(/*sync=*/true);
  metrics.OnProgress(Told(0, 1, 20), now_, &lines_);
  metrics.OnProgress(Told(2, 0, 10), now_, &lines_);
  metrics.OnProgress(Told(2, 1, 10), now_, &lines_);
  EXPECT_TRUE(lines_.empty());
  EXPECT_EQ(metrics.MissingLeaves(), (std::vector<int64_t>{0}));
  // Of step 0 a half is known, of step 1 nothing.
  metrics.CatchUp(3, now_, &lines_);
  EXPECT_EQ(metrics.steps(), 3);
  EXPECT_EQ(metrics.samples(), kEpoch);
  ASSERT_EQ(lines_.size(), 2u);
  EXPECT_EQ(lines_[0].step, 1);
  EXPECT_EQ(lines_[0].unit, 1);
  EXPECT_EQ(lines_[0].loss, 2);
  EXPECT_EQ(lines_[1].step, 3);
  EXPECT_EQ(lines_[1].loss, 1.5);
  metrics.CatchUp(2, now_, &lines_);
  EXPECT_EQ(metrics.steps(), 3);
}

TEST_F(MetricsTest, ALossIsTheMeanOfTheSamplesWhoseLossIsTold) {
  job_.mutable_metrics()->mutable_every()->set_steps(2);
  Metrics metrics = Begun(/*sync=*/true);
  for (const int64_t leaf : {0, 1}) metrics.OnProgress(Told(0, leaf, 20), now_, &lines_);
  for (const int64_t leaf : {0, 1}) {  // no target of the step counts
    proto::Progress nothing = Told(1, leaf, 20);
    nothing.set_loss_sum(0, 0);
    nothing.add_told(0);
    metrics.OnProgress(nothing, now_, &lines_);
  }
  ASSERT_EQ(lines_.size(), 1u);
  EXPECT_EQ(lines_[0].step, 2);
  EXPECT_EQ(lines_[0].loss, 1.5);
  proto::EvaluationResult evaluation;
  evaluation.set_judged(20);
  evaluation.set_samples(20);
  EXPECT_TRUE(std::isnan(metrics.OnEvaluation(evaluation, now_).loss));
}

TEST_F(MetricsTest, AccuracyAndATestsLossAreOfWhatIsJudged) {
  Metrics metrics = Begun(/*sync=*/true);
  proto::Progress left = Told(0, 0, 20), right = Told(0, 1, 20);
  left.add_correct(6);
  left.add_judged(8);
  right.add_correct(3);
  right.add_judged(10);
  metrics.OnProgress(left, now_, &lines_);
  metrics.OnProgress(right, now_, &lines_);
  for (const int64_t leaf : {0, 1}) {  // all labels are ignored
    proto::Progress nothing = Told(1, leaf, 20);
    nothing.add_correct(0);
    nothing.add_judged(0);
    metrics.OnProgress(nothing, now_, &lines_);
  }
  ASSERT_EQ(lines_.size(), 2u);
  EXPECT_EQ(lines_[0].accuracy, 0.5);
  EXPECT_EQ(lines_[0].loss, 1.5);
  EXPECT_EQ(lines_[1].accuracy, std::nullopt);
  proto::EvaluationResult evaluation;
  evaluation.set_loss_sum(30);
  evaluation.set_correct(12);
  evaluation.set_judged(16);
  evaluation.set_samples(20);
  EXPECT_EQ(metrics.OnEvaluation(evaluation, now_).accuracy, 0.75);
  EXPECT_EQ(metrics.OnEvaluation(evaluation, now_).loss, 1.875);  // 30 / 16
  evaluation.set_loss_sum(0);
  evaluation.set_correct(0);
  evaluation.set_judged(0);
  EXPECT_TRUE(std::isnan(metrics.OnEvaluation(evaluation, now_).loss));
  EXPECT_EQ(metrics.OnEvaluation(evaluation, now_).accuracy, std::nullopt);
  evaluation.clear_correct();  // targets are numbers
  evaluation.clear_judged();
  evaluation.set_loss_sum(30);
  EXPECT_EQ(metrics.OnEvaluation(evaluation, now_).loss, 1.5);
  proto::EvaluationResult::Figure& other = *evaluation.add_others();
  other.set_name("f1");
  other.set_value(0.25);
  EXPECT_EQ(metrics.OnEvaluation(evaluation, now_).others,
            (std::map<std::string, double>{{"f1", 0.25}}));
}

TEST_F(MetricsTest, ATestIsOfAsManySamplesAsItsParametersHold) {
  Metrics metrics = Begun(/*sync=*/false);
  proto::EvaluationResult evaluation;
  evaluation.set_unit(2);
  evaluation.set_samples(20);
  EXPECT_EQ(metrics.OnEvaluation(evaluation, now_).samples, 80);
  evaluation.set_version(1);
  EXPECT_EQ(metrics.OnEvaluation(evaluation, now_).samples, 40);
  EXPECT_EQ(metrics.OnEvaluation(evaluation, now_).unit, 1);
  EXPECT_EQ(metrics.OnEvaluation(evaluation, now_).due, 2);
}

TEST_F(MetricsTest, OnArrivalTheSamplesOfContributionsThatNobodyToldOfCount) {
  Metrics metrics = Begun(/*sync=*/false);
  metrics.OnProgress(Told(0, 0, 20), now_, &lines_);
  metrics.CatchUp(3, now_, &lines_);
  EXPECT_EQ(metrics.samples(), kEpoch);
  EXPECT_EQ(metrics.units(), 3);
}

TEST_F(MetricsTest, OnArrivalALineTellsOfAsManyUpdatesAsContributions) {
  Metrics metrics = Begun(/*sync=*/false);
  metrics.OnProgress(Told(0, 0, 20), now_, &lines_);
  metrics.OnProgress(Told(1, 0, 20), now_, &lines_);
  ASSERT_EQ(lines_.size(), 1u);
  EXPECT_EQ(lines_[0].step, 1);
  EXPECT_EQ(lines_[0].unit, 2);
}

TEST_F(MetricsTest, EachRanksTimeIsWhatItComputedAndTheRest) {
  Metrics metrics = Begun(/*sync=*/true);
  EXPECT_TRUE(metrics.WorkerTimes(now_).empty());
  metrics.OnComputed(1, 2);
  metrics.OnComputed(0, 1);
  metrics.OnComputed(1, 3);
  const std::vector<WorkerTime> times = metrics.WorkerTimes(now_ + absl::Seconds(4));
  ASSERT_EQ(times.size(), 2u);
  EXPECT_EQ(times[0].computing, 1);
  EXPECT_EQ(times[0].waiting, 3);
  EXPECT_EQ(times[1].computing, 5);
  EXPECT_EQ(times[1].waiting, 0);  // it began before this process did
}

TEST_F(MetricsTest, TheShareOfCommunicationThatIsHiddenIsThatOfTheSumsSinceTheLastLine) {
  Metrics metrics = Begun(/*sync=*/true);
  const auto tell = [&](int64_t unit, int64_t leaf, double waiting, double communicating) {
    proto::Progress progress = Told(unit, leaf, 20);
    progress.set_waiting_seconds(waiting);
    progress.set_communicating_seconds(communicating);
    metrics.OnProgress(progress, now_, &lines_);
  };
  tell(0, 0, 1, 2);
  tell(0, 1, 0, 6);
  tell(1, 0, 3, 4);
  tell(1, 0, 3, 4);  // its part of the step once more, by who took it over
  metrics.OnProgress(Told(1, 1, 20), now_, &lines_);
  ASSERT_EQ(lines_.size(), 2u);
  EXPECT_EQ(lines_[0].overlap.hidden(), 1 - 1.0 / 8);
  EXPECT_EQ(lines_[0].overlap.mean_waiting_seconds(), 0.5);
  EXPECT_EQ(lines_[1].overlap.hidden(), 0.25);
  EXPECT_EQ(lines_[1].overlap.mean_waiting_seconds(), 3);
  EXPECT_EQ(metrics.overlap().hidden(), 1 - 7.0 / 16);
  metrics.OnProgress(Told(2, 0, 10), now_, &lines_);
  metrics.OnProgress(Told(2, 1, 10), now_, &lines_);
  EXPECT_EQ(lines_.back().overlap.hidden(), std::nullopt);  // nobody told
}

// Two workers that tell of several steps at once, the second when the first has long told.
TEST_F(MetricsTest, AStepWasDoneWhenItsLastPartWasComputed) {
  Metrics metrics = Begun(/*sync=*/true);
  const auto at = [this](int milliseconds) { return now_ + absl::Milliseconds(milliseconds); };
  for (int step = 0; step < 3; ++step)
    metrics.OnProgress(Told(step, 0, 20), at(10 * step), &lines_);
  for (int step = 0; step < 3; ++step) {
    metrics.OnProgress(Told(step, 1, 20), at(10 * step + (step == 1 ? -5 : 5)), &lines_);
  }
  ASSERT_EQ(lines_.size(), 3u);
  EXPECT_DOUBLE_EQ(lines_[0].time, 0.005);
  EXPECT_DOUBLE_EQ(lines_[1].time, 0.010);
  EXPECT_DOUBLE_EQ(lines_[2].time, 0.025);
  EXPECT_DOUBLE_EQ(lines_[2].samples_per_second, 120 / 0.025);
  EXPECT_DOUBLE_EQ(metrics.last_seconds(), 0.025);
}

TEST_F(MetricsTest, TimeDoesNotGoBackFromLineToLine) {
  Metrics metrics = Begun(/*sync=*/true);
  const auto at = [this](int milliseconds) { return now_ + absl::Milliseconds(milliseconds); };
  for (const int64_t leaf : {0, 1}) metrics.OnProgress(Told(0, leaf, 20), at(20), &lines_);
  EXPECT_DOUBLE_EQ(metrics.OnEvaluation(proto::EvaluationResult(), at(50)).time, 0.050);
  for (const int64_t leaf : {0, 1}) metrics.OnProgress(Told(1, leaf, 20), at(40), &lines_);
  for (const int64_t leaf : {0, 1}) metrics.OnProgress(Told(2, leaf, 20), at(60), &lines_);
  ASSERT_EQ(lines_.size(), 3u);
  EXPECT_DOUBLE_EQ(lines_[1].time, 0.050);
  EXPECT_DOUBLE_EQ(lines_[2].time, 0.060);
  EXPECT_DOUBLE_EQ(lines_[1].samples_per_second, 80 / 0.040);  // however late it is told
}

// Worker 1 tells of 25 contributions at once, a test ends, and worker 0 tells of as many of the
// same time: each has computed one a millisecond.
TEST_F(MetricsTest, ASpeedIsOfAHundredMillisecondsAtLeast) {
  Metrics metrics = Begun(/*sync=*/false);
  const auto at = [this](int milliseconds) { return now_ + absl::Milliseconds(milliseconds); };
  int64_t unit = 0;
  for (int end = 25; end <= 500; end += 25) {
    for (const int64_t worker : {1, 0}) {
      if (worker == 0) metrics.OnEvaluation(proto::EvaluationResult(), at(end + 2));
      for (int step = end - 24; step <= end; ++step) {
        metrics.OnProgress(Told(unit++, worker, 20), at(step), &lines_);
      }
    }
  }
  ASSERT_EQ(lines_.size(), 500u);
  double last = 0;
  for (const MetricsLine& line : lines_) {
    EXPECT_GE(line.time, last);
    last = line.time;
    if (line.time < 0.1) continue;
    EXPECT_GE(line.samples_per_second, 30'000) << line.time;
    EXPECT_LE(line.samples_per_second, 50'000) << line.time;
  }
}

TEST_F(MetricsTest, TheSpeedOfALineThatIsLongAfterTheOneBeforeIsFromThereOn) {
  Metrics metrics = Begun(/*sync=*/true);
  const auto tell = [&](int64_t unit, absl::Duration after) {
    for (const int64_t leaf : {0, 1}) {
      metrics.OnProgress(Told(unit, leaf, 20), now_ + after, &lines_);
    }
  };
  tell(0, absl::Milliseconds(10));
  tell(1, absl::Milliseconds(1010));
  tell(2, absl::Milliseconds(1050));
  tell(3, absl::Milliseconds(1510));
  ASSERT_EQ(lines_.size(), 4u);
  EXPECT_DOUBLE_EQ(lines_[0].samples_per_second, 40 / 0.01);
  EXPECT_DOUBLE_EQ(lines_[1].samples_per_second, 40 / 1.0);
  EXPECT_DOUBLE_EQ(lines_[2].samples_per_second, 80 / 1.04);
  EXPECT_DOUBLE_EQ(lines_[3].samples_per_second, 40 / 0.46);
}

// One member may be ahead of what another has told of, but not without bound.
TEST_F(MetricsTest, KeepsPartsOfSoManySteps) {
  Metrics metrics(job_, kEpoch, now_, now_);
  proto::View view;
  view.set_leaves(1 << 16);
  *view.mutable_mode() = SyncMode();
  metrics.Begin(BuiltInPolicy(view), view.mode(), SampleSchedule(kEpoch, 40, 1 << 16), 0, 0, 0,
                &lines_);
  for (int64_t unit = 1; unit < 1000; ++unit) metrics.OnProgress(Told(unit, 0, 1), now_, &lines_);
  EXPECT_TRUE(lines_.empty());
  EXPECT_EQ(metrics.open(), 16u);
}

TEST_F(MetricsTest, NoLineIsOfTwoModes) {
  job_.mutable_metrics()->mutable_every()->set_steps(10);
  Metrics metrics = Begun(/*sync=*/true);
  for (const int64_t leaf : {0, 1}) metrics.OnProgress(Told(0, leaf, 20), now_, &lines_);
  EXPECT_TRUE(lines_.empty());
  proto::View view;
  view.set_leaves(2);
  *view.mutable_mode() = BoundedMode(3);
  metrics.Begin(BuiltInPolicy(view), view.mode(), SampleSchedule(kEpoch, 20, 1, 1, 40), 1, 40, 1,
                &lines_);
  ASSERT_EQ(lines_.size(), 1u);
  EXPECT_EQ(lines_[0].mode, "sync");
  EXPECT_EQ(lines_[0].unit, 1);
  EXPECT_EQ(lines_[0].samples, 40);
  EXPECT_EQ(lines_[0].loss, 1.5);
  metrics.OnProgress(Told(1, 0, 20), now_, &lines_);
  metrics.CloseWindow(now_, &lines_);
  ASSERT_EQ(lines_.size(), 2u);
  EXPECT_EQ(lines_[1].mode, "bounded, staleness 3");
  EXPECT_EQ(lines_[1].samples, 60);
  EXPECT_EQ(lines_[1].loss, 1);  // of its samples alone
}

TEST_F(MetricsTest, LinesAreAsManyForEachDoublingOfTheRun) {
  Metrics metrics = Begun(/*sync=*/true);
  constexpr int64_t kSteps = 1 << 20;
  for (int64_t step = 0; step < kSteps; ++step) {
    for (const int64_t leaf : {0, 1}) metrics.OnProgress(Told(step, leaf, 20), now_, &lines_);
  }
  // 2^15 at each step, and 2^14 for each of the five times that 2^15 become 2^20.
  EXPECT_EQ(lines_.size(), (1u << 15) + 5 * (1u << 14));
  EXPECT_EQ(lines_[(1 << 15) - 1].step, 1 << 15);
  EXPECT_EQ(lines_[1 << 15].step, (1 << 15) + 2);
  EXPECT_EQ(lines_.back().step, kSteps);
  // None is less than it says: a mean over all samples since the line before.
  for (const MetricsLine& line : lines_) ASSERT_EQ(line.loss, 1.5);
}

TEST_F(MetricsTest, LinesThatTimeMakesDueAreAsManyForEachDoublingToo) {
  job_.mutable_metrics()->mutable_every()->set_samples(int64_t{1} << 50);
  Metrics metrics = Begun(/*sync=*/true);
  absl::Time time = now_;
  int64_t step = 0;
  const absl::Time end = now_ + absl::Hours(24 * 7);
  for (; time < end; ++step, time += absl::Seconds(5)) {
    for (const int64_t leaf : {0, 1}) metrics.OnProgress(Told(step, leaf, 20), time, &lines_);
  }
  EXPECT_GT(step, 120'000);
  EXPECT_LT(lines_.size(), (1u << 15) + 2 * (1u << 14));
  EXPECT_GT(lines_.size(), (1u << 15) + (1u << 14));
}

}  // namespace
}  // namespace rubato
