#include "server/coordinator/lineage.h"

#include "common/space/modes.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

const proto::Mode kSync = SyncMode();
const proto::Mode kAsync = AsyncMode();
const proto::Mode kBounded = BoundedMode(2);

// Two epochs of 16 samples: async for the first, sync for the second. Steps have 8 samples,
// contributions 4.
Lineage Scheduled() {
  proto::Job job;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      "cluster { workers { start: 2 } } train { batch_size: 8 micro_batches: 4 until { epochs: 2 } "
      "} consistency { schedule { mode { mode: NAME_ASYNC } until { epochs: 1 } } schedule { "
      "mode { mode: NAME_SYNC } } }",
      &job));
  return Lineage(job, 16);
}

TEST(LineageTest, EndsWhereTheScheduleHasAnotherMode) {
  Lineage lineage = Scheduled();
  lineage.Begin(lineage.ScheduledAt(0), 0, 0);
  EXPECT_EQ(ModeName(lineage.mode()), ModeName(kAsync));
  EXPECT_EQ(lineage.until(), 4);
  EXPECT_FALSE(lineage.is_last());
  lineage.Finish();
  EXPECT_TRUE(lineage.is_over());
  lineage.BeginNext(4);
  EXPECT_EQ(lineage.number(), 2u);
  EXPECT_EQ(ModeName(lineage.mode()), ModeName(kSync));
  EXPECT_FALSE(lineage.is_over());
  EXPECT_EQ(lineage.until(), 6);
  EXPECT_TRUE(lineage.is_last());
}

TEST(LineageTest, WhatAPersonAsksForHoldsUpToTheNextPointOfTheSchedule) {
  Lineage lineage = Scheduled();
  lineage.Begin(lineage.ScheduledAt(0), 0, 0);
  lineage.Ask(kBounded, lineage.stage_until_samples());
  EXPECT_EQ(ModeName(lineage.asked().value()), ModeName(kBounded));
  lineage.Cut(1);
  EXPECT_EQ(ModeName(lineage.next_mode()), ModeName(kBounded));
  lineage.BeginNext(1);
  EXPECT_FALSE(lineage.asked().has_value()) << "it holds";
  EXPECT_EQ(lineage.until(), 4);
  EXPECT_EQ(ModeName(lineage.next_mode()), ModeName(kSync));
  lineage.BeginNext(4);
  EXPECT_EQ(ModeName(lineage.mode()), ModeName(kSync));
}

TEST(LineageTest, OneThatIsCutBeforeTheSchedulesPointGoesOnAsAsked) {
  Lineage lineage = Scheduled();
  lineage.Begin(lineage.ScheduledAt(0), 0, 0);
  lineage.Ask(kBounded, lineage.stage_until_samples());
  lineage.Cut(1);
  lineage.BeginNext(1);
  lineage.Cut(2);
  lineage.Cut(3);
  EXPECT_EQ(lineage.until(), 2) << "it never grows";
  EXPECT_EQ(ModeName(lineage.next_mode()), ModeName(kBounded));
}

}  // namespace
}  // namespace rubato
