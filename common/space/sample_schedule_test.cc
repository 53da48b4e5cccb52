#include "common/space/sample_schedule.h"

#include <vector>

#include "gtest/gtest.h"

namespace rubato {
namespace {

TEST(SampleScheduleTest, MicroBatchesOfAnEpochCoverEachPositionOnce) {
  for (int64_t samples : {1, 7, 60, 64, 100}) {
    for (int64_t unit_samples : {1, 6, 16, 128}) {
      for (int64_t leaves : {1, 2, 3, 5}) {
        const SampleSchedule schedule(samples, unit_samples, leaves);
        const int64_t units_per_epoch = (samples + unit_samples - 1) / unit_samples;
        const int64_t max_micro_batch = (unit_samples + leaves - 1) / leaves;
        for (int64_t epoch : {0, 3}) {
          std::vector<int> seen(samples, 0);
          for (int64_t u = 0; u < units_per_epoch; ++u) {
            for (int64_t leaf = 0; leaf < leaves; ++leaf) {
              const SampleRange range = schedule.MicroBatch(epoch * units_per_epoch + u, leaf);
              EXPECT_EQ(range.epoch, epoch);
              EXPECT_LE(range.positions.size(), max_micro_batch);
              for (int64_t i = range.positions.begin; i < range.positions.end; ++i) ++seen.at(i);
            }
          }
          EXPECT_EQ(seen, std::vector<int>(samples, 1));
        }
      }
    }
  }
}

TEST(SampleScheduleTest, AFullUnitIsDividedEvenly) {
  const SampleSchedule schedule(1000, 64, 4);
  EXPECT_EQ(schedule.MicroBatch(0, 1).positions, (Range{16, 32}));
  EXPECT_EQ(schedule.MicroBatch(15, 0).positions, (Range{960, 970}));  // 40 samples are left
  EXPECT_EQ(schedule.MicroBatch(16, 0).epoch, 1);
}

TEST(SampleScheduleTest, SamplesOfLeavesAreThoseOfTheirMicroBatches) {
  const SampleSchedule schedule(45, 20, 7);  // 20, 20 and 5 samples, whose micro-batches differ
  for (int64_t unit : {0, 1, 2}) {
    for (int64_t begin = 0; begin < 7; ++begin) {
      int64_t samples = 0;
      for (int64_t end = begin + 1; end <= 7; ++end) {
        samples += schedule.MicroBatch(unit, end - 1).positions.size();
        EXPECT_EQ(schedule.Samples(unit, {begin, end}), samples);
      }
    }
  }
}

TEST(SampleScheduleTest, CountsSamplesAndUnitsAcrossEpochs) {
  const SampleSchedule schedule(100, 16, 2);  // 7 units an epoch, the last of 4 samples
  EXPECT_EQ(schedule.SamplesBefore(6), 96);
  EXPECT_EQ(schedule.SamplesBefore(7), 100);
  EXPECT_EQ(schedule.SamplesBefore(8), 116);
  EXPECT_EQ(schedule.UnitsFor(96), 6);
  EXPECT_EQ(schedule.UnitsFor(97), 7);
  EXPECT_EQ(schedule.UnitsFor(300), 21);
}

}  // namespace
}  // namespace rubato
