// Counters hold what a training of years counts: 10^15 samples and 10^12 steps. All that computes
// with them is held against exact integers or long doubles.
#include <cmath>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/status_matchers.h"
#include "common/consistency/policy.h"
#include "common/consistency/unit_set.h"
#include "common/files/checkpoint.h"
#include "common/files/run_folder.h"
#include "common/optimizers/rule.h"
#include "common/space/learning_rate.h"
#include "common/space/modes.h"
#include "common/space/permutation.h"
#include "common/space/sample_schedule.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "proto/tensorboard_event.pb.h"
#include "server/coordinator/peer_checks.h"
#include "server/coordinator/work_ledger.h"
#include "server/run/metrics.h"
#include "server/run/metrics_file.h"
#include "server/run/tensorboard_file.h"

namespace rubato {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using Wide = __int128;

constexpr int64_t kSteps = 1'000'000'000'000;
constexpr int64_t kSamples = 1'000'000'000'000'000;

int64_t Product(int64_t a, int64_t b) {
  const Wide product = Wide{a} * b;
  EXPECT_TRUE(product <= INT64_MAX);
  return static_cast<int64_t>(product);
}

TEST(CountersTest, ASchedulesUnitsMeetWithoutAGap) {
  for (const int64_t epoch : {int64_t{7}, int64_t{60'000}, int64_t{1} << 40}) {
    for (const int64_t unit_samples : {int64_t{1}, int64_t{64}, int64_t{1000}}) {
      const SampleSchedule schedule(epoch, unit_samples, 4, kSteps, kSamples);
      EXPECT_EQ(schedule.SamplesBefore(kSteps), kSamples);
      Wide samples = kSamples;
      for (int64_t unit = kSteps; unit < kSteps + 3000; ++unit) {
        const SampleRange range = schedule.Unit(unit);
        ASSERT_TRUE(Wide{range.epoch} * epoch + range.positions.begin == samples)
            << epoch << " " << unit;
        ASSERT_EQ(schedule.UnitsFor(static_cast<int64_t>(samples)), unit);
        samples += range.positions.size();
        ASSERT_TRUE(schedule.SamplesBefore(unit + 1) == samples);
      }
    }
  }
  // From the beginning: so many whole epochs of units.
  const SampleSchedule schedule(60'000, 64, 4);
  constexpr int64_t kUnits = 938;  // of an epoch
  const int64_t epochs = kSamples / 60'000;
  const int64_t unit = Product(epochs, kUnits) + 5;
  EXPECT_EQ(schedule.SamplesBefore(unit), Product(epochs, 60'000) + 5 * 64);
  EXPECT_EQ(schedule.UnitsFor(Product(epochs, 60'000) + 5 * 64), unit);
  EXPECT_EQ(schedule.MicroBatch(unit, 3).positions.begin, 5 * 64 + 48);
  EXPECT_EQ(schedule.MicroBatch(unit, 3).epoch, epochs);
}

TEST(CountersTest, WhatRecursIsDueWhereExactNumbersSayIt) {
  proto::Job job;
  job.mutable_train()->set_batch_size(64);
  proto::Point every;
  every.set_samples(1'000'003);
  const SampleSchedule schedule(60'000, 64, 4, kSteps, kSamples);
  for (const proto::Mode& mode : {SyncMode(), AsyncMode()}) {
    const Recurrence recurrence(every, job, 60'000);
    int64_t units = kSteps;
    for (int i = 0; i < 100; ++i) {
      const int64_t next = recurrence.Next(schedule, mode, units);
      const int64_t before = schedule.SamplesBefore(units);
      const Wide point = (Wide{before} / 1'000'003 + 1) * 1'000'003;
      ASSERT_TRUE(schedule.SamplesBefore(next) >= point);
      ASSERT_TRUE(schedule.SamplesBefore(next - 1) < point);
      ASSERT_TRUE(recurrence.IsDue(schedule, mode, next));
      ASSERT_EQ(recurrence.Last(schedule, mode, next), next);
      units = next;
    }
  }
  every.set_steps(50);
  EXPECT_EQ(Recurrence(every, job, 60'000).Next(schedule, SyncMode(), kSteps + 1), kSteps + 50);
}

TEST(CountersTest, LearningRatesAreThoseOfLongDoubles) {
  proto::Optimizer optimizer;
  optimizer.set_learning_rate(0.1);
  proto::Point until;
  until.set_samples(kSamples);
  proto::Schedule& schedule = *optimizer.mutable_schedule();
  schedule.set_name(proto::Schedule::NAME_STEP);
  schedule.mutable_every()->set_samples(999'999'937);
  schedule.set_gamma(0.999999);
  // On both sides of where the rate changes.
  const int64_t change = kSamples / 999'999'937 * 999'999'937;
  for (const int64_t samples : {change - 1, change, change + 1, kSamples}) {
    const long double expected =
        0.1L * std::pow(static_cast<long double>(0.999999), samples / 999'999'937);
    EXPECT_NEAR(LearningRate(optimizer, 64, 60'000, until).At(samples), expected, 1e-7 * expected)
        << samples;
  }
  schedule.set_name(proto::Schedule::NAME_COSINE);
  schedule.set_final_ratio(0.01);
  schedule.mutable_warmup()->set_samples(kSamples);
  for (const int64_t samples : {kSamples / 3, kSamples - 1'000'000, kSamples, kSamples + 5}) {
    const long double part = std::min<long double>(1, samples / static_cast<long double>(kSamples));
    const long double expected =
        0.1L * part * (0.01L + 0.99L * (1 + std::cos(3.14159265358979323846264L * part)) / 2);
    EXPECT_NEAR(LearningRate(optimizer, 64, 60'000, until).At(samples), expected, 1e-7 * expected)
        << samples;
  }
}

TEST(CountersTest, EpochsFarAwayHaveOrdersOfTheirOwn) {
  const uint64_t epoch = kSamples / 997;
  std::set<std::vector<uint64_t>> orders;
  for (const uint64_t e : {uint64_t{0}, epoch - 1, epoch, epoch + 1, epoch + (uint64_t{1} << 32)}) {
    std::set<uint64_t> seen;
    std::vector<uint64_t> order;
    for (uint64_t place = 0; place < 997; ++place) order.push_back(SampleAt(1, e, place, 997));
    seen.insert(order.begin(), order.end());
    EXPECT_EQ(seen.size(), 997u);
    EXPECT_EQ(*seen.rbegin(), 996u);
    orders.insert(order);
  }
  EXPECT_EQ(orders.size(), 5u);
  // Places far into a large epoch.
  const Permutation large(5, kSamples);
  std::set<uint64_t> samples;
  for (uint64_t place = kSamples - 10'000; place < kSamples; ++place) {
    samples.insert(large(place));
  }
  EXPECT_EQ(samples.size(), 10'000u);
  EXPECT_LT(*samples.rbegin(), static_cast<uint64_t>(kSamples));
}

TEST(CountersTest, AnOptimizersBiasIsThatOfItsUpdates) {
  constexpr double kBeta = 1 - 1e-12;
  const long double expected = std::pow(static_cast<long double>(kBeta), kSteps);
  EXPECT_NEAR(Power(kBeta, kSteps), expected, 1e-4 * expected);
  EXPECT_EQ(Power(0.999, kSteps), 0);
}

// A line of metrics, where it is written and shown.
TEST(CountersTest, MetricsCountOn) {
  proto::Job job;
  job.mutable_train()->set_batch_size(64);
  job.mutable_train()->mutable_until()->set_time(1e8);
  job.mutable_metrics()->mutable_every()->set_steps(1);
  job.mutable_optimizer()->set_learning_rate(0.1);
  const absl::Time now = absl::UnixEpoch() + absl::Hours(24 * 365 * 30);
  Metrics metrics(job, 60'000, absl::UnixEpoch(), now);
  proto::View view;
  view.set_leaves(1);
  *view.mutable_mode() = SyncMode();
  std::vector<MetricsLine> lines;
  metrics.Begin(BuiltInPolicy(view), view.mode(), SampleSchedule(60'000, 64, 1, kSteps, kSamples),
                kSteps, kSamples, kSteps, &lines);
  int64_t samples = kSamples, unit = kSteps;
  while (lines.empty()) {  // until the next one is due
    proto::Progress progress;
    progress.set_unit(unit);
    progress.add_samples(
        SampleSchedule(60'000, 64, 1, kSteps, kSamples).Unit(unit).positions.size());
    progress.add_loss_sum(2.0 * static_cast<double>(progress.samples(0)));
    samples += progress.samples(0);
    ++unit;
    metrics.OnProgress(progress, now + absl::Hours(24 * 365 * (unit - kSteps)), &lines);
  }
  EXPECT_EQ(lines[0].step, unit);
  EXPECT_EQ(lines[0].samples, samples);
  EXPECT_EQ(lines[0].loss, 2);
  EXPECT_NEAR(lines[0].epoch, static_cast<long double>(samples) / 60'000, 1e-5);
  const auto json = nlohmann::json::parse(ToJson(lines[0]));
  EXPECT_EQ(json["step"].get<int64_t>(), unit);
  EXPECT_EQ(json["samples"].get<int64_t>(), samples);
  absl::StatusOr<TensorboardFile> file = TensorboardFile::Create(testing::TempDir(), now, "test");
  RUBATO_ASSERT_OK(file);
  RUBATO_ASSERT_OK(file->Append(lines[0], now));
  const std::string events = *ReadSmallFile(file->path());
  proto::tensorboard::Event event;
  event.set_wall_time(absl::ToDoubleSeconds(now - absl::UnixEpoch()));
  event.set_step(unit);
  EXPECT_THAT(events, HasSubstr(event.SerializeAsString()));
}

TEST(CountersTest, LedgersGoOn) {
  UnitSet units(kSteps);
  units.Insert(kSteps + 1);
  units.Insert(kSteps);
  EXPECT_EQ(units.below(), kSteps + 2);
  WorkLedger ledger(kSteps);
  EXPECT_EQ(ledger.Give({0, 1}, kSteps + 1), kSteps);
  EXPECT_EQ(ledger.Give({0, 1}, kSteps + 1), std::nullopt);
  EXPECT_TRUE(ledger.OnComputed({0, 1}, kSteps, kSteps / 2, /*left_out=*/false));
  ledger.OnApplied({0, 1}, kSteps / 2 + 1);
  EXPECT_EQ(ledger.first_open(), kSteps + 1);
}

proto::Manifest ManifestAt(int64_t step, int64_t samples) {
  proto::Manifest manifest;
  manifest.set_format(1);
  manifest.set_step(step);
  manifest.set_samples(samples);
  manifest.set_samples_per_epoch(60'000);
  manifest.set_epoch(static_cast<double>(samples) / 60'000);
  manifest.set_unit_samples(64);
  manifest.set_block_values(16);
  manifest.set_seconds(1e9);
  proto::BlockState* block = manifest.add_blocks();
  block->set_block(0);
  block->set_version(step);
  block->set_samples(samples);
  block->set_units_below(step);
  return manifest;
}

TEST(CountersTest, CheckpointsAreReadAndStandInOrder) {
  proto::Layout layout;
  layout.add_parameters()->set_name("w");
  layout.mutable_parameters(0)->add_shape(4);
  TrainingState state;
  state.parameters.assign(4, 1);
  const std::string folder = testing::TempDir() + "/checkpoints";
  for (const int64_t step : {kSteps, int64_t{999}, kSteps - 1}) {
    const proto::Manifest manifest = ManifestAt(step, step * 1000);
    const absl::StatusOr<std::string> path =
        WriteCheckpoint(folder, manifest, "name: x\n", layout, state);
    RUBATO_ASSERT_OK(path);
    const absl::StatusOr<proto::Manifest> read = CheckCheckpoint(*path);
    RUBATO_ASSERT_OK(read);
    EXPECT_EQ(read->samples(), step * 1000);
    EXPECT_EQ(read->blocks(0).version(), step);
  }
  EXPECT_THAT(ListCheckpoints(folder),
              ElementsAre(EndsWith("/step-00000999"), EndsWith("/step-999999999999"),
                          EndsWith("/step-1000000000000")));
}

// A shard that has taken 10 GB a second for ten years, whose report ends the job well.
TEST(CountersTest, AShardMayReportWhatItHasDone) {
  proto::PeerMessage message;
  proto::ShardReport& report = *message.mutable_shard_report();
  report.set_pushed_bytes(int64_t{10'000'000'000} * 3600 * 24 * 365 * 10);
  report.set_pulled_bytes(report.pushed_bytes());
  report.set_duplicates(kSteps);
  proto::ShardReport::Block* block = report.add_blocks();
  block->set_version(kSteps);
  block->set_samples(kSamples);
  PeerTerms terms;
  terms.blocks = {0, 1};
  terms.reports = true;
  RUBATO_EXPECT_OK(CheckShardMessage(message, terms));
}

}  // namespace
}  // namespace rubato
