#include "server/shard/float_values.h"

#include <map>
#include <vector>

#include "common/space/modes.h"
#include "server/shard/float_shard.h"

namespace rubato {
namespace {

using ::testing::HasSubstr;

TEST_F(FloatShardTest, BeginsWithTheInitialValuesWhateverTheBlocks) {
  Start(SyncMode(), 1, 1);
  Open();
  EXPECT_EQ(Parameters(0, 0), Initial());
}

// The formulas written out: sums along the tree, one division by the weight, momentum.
TEST_F(FloatShardTest, SyncStepsAreMomentumStepsOnTheWeightedMean) {
  Start(SyncMode(), 2, 3);
  Open();
  std::vector<float> w = Initial(), m(kValues);
  for (uint64_t step = 0; step < 4; ++step) {
    const std::vector<float> a = Gradient(step * 2), b = Gradient(step * 2 + 1);
    const uint32_t samples_b = step == 3 ? 1 : 2;  // a short step
    for (int64_t block = 0; block < 2; ++block) {
      RUBATO_ASSERT_OK(Push(1, step, {2, 3}, samples_b, step * 2 + 1, block));
      RUBATO_ASSERT_OK(Push(0, step, {0, 2}, 4, step * 2, block));
    }
    for (int64_t i = 0; i < 32; ++i) {
      const float g = (a[i] + b[i]) * static_cast<float>(1.0 / (4 + samples_b));
      m[i] = step == 0 ? g : 0.75f * m[i] + g;
      w[i] = w[i] - 0.5f * m[i];
    }
  }
  std::vector<float> parameters = Parameters(0, 0);
  parameters.resize(32);  // the last block has waited all the time
  w.resize(32);
  EXPECT_EQ(parameters, w);
}

TEST_F(FloatShardTest, OnArrivalTheRateIsScaledByTheShareOfABatch) {
  Start(AsyncMode(), 2, 1);
  Open();
  RUBATO_ASSERT_OK(Push(0, 0, {0, 1}, 2, 7, 0));  // 2 of 8 samples
  const std::vector<float> parameters = Parameters(0xffffffff, 0), before = Initial(),
                           g = Gradient(7);
  for (int i = 0; i < 16; ++i) {
    EXPECT_EQ(parameters[i], before[i] - 0.125f * (g[i] * 0.5f)) << i;
  }
}

// Averages of statistics move as far over a batch in many parts as over a whole one, whether or not
// the learning rate is scaled too.
TEST_F(FloatShardTest, OnArrivalAveragesMoveByTheShareOfABatch) {
  for (const bool parity : {true, false}) {
    Start(AsyncMode(), 2, 1, "", /*first=*/16);  // the averages lie behind the parameters
    view_.mutable_layout()->mutable_parameters(1)->set_average(0.5);
    if (!parity) view_.clear_whole_rate_samples();
    Open();
    RUBATO_ASSERT_OK(Push(0, 0, {0, 1}, 2, 7, 1));  // 2 of 8 samples
    const std::vector<float> averages = Parameters(0xffffffff, 0), before = Initial(),
                             g = Gradient(7);
    for (int i = 16; i < 32; ++i) {
      EXPECT_EQ(averages[i], before[i] + 0.125f * (g[i] * 0.5f - before[i])) << i << parity;
    }
    view_.Clear();
    said_.clear();
  }
}

// The border between them lies within a block that is not the first.
TEST_F(FloatShardTest, EachParameterHasTheRateOfItsGroupAndTheSchedulesFactor) {
  Start(AsyncMode(), 1, 1,
        "optimizer { momentum: 0 schedule { name: NAME_STEP every { samples: 4 } gamma: 0.5 } "
        "groups { match: '1.*' learning_rate: 2 } }",
        /*first=*/20);
  Open();
  std::vector<float> w = Initial();
  for (uint64_t clock = 0; clock < 2; ++clock) {
    const std::vector<float> g = Gradient(clock);
    // 4 of 8 samples; after the first 4 the schedule halves the rate.
    for (int64_t block = 0; block < 2; ++block) {
      RUBATO_ASSERT_OK(Push(0, clock, {0, 1}, 4, clock, block));
    }
    for (int i = 0; i < 32; ++i) {
      const float rate = (i < 20 ? 0.5f : 2) * 0.5f * (clock == 0 ? 1 : 0.5f);
      w[i] = w[i] - rate * (0.25f * g[i]);
    }
  }
  EXPECT_EQ(Parameters(0xffffffff, 0), w);
}

TEST_F(FloatShardTest, AFrozenParameterKeepsItsBitsAndABlockOfNothingElseGoesOn) {
  Start(SyncMode(), 1, 1, "optimizer { groups { match: '0.*' learning_rate: 0 } }",
        /*first=*/20);
  Open();
  for (uint64_t step = 0; step < 3; ++step) {
    for (int64_t block = 0; block < 2; ++block) {
      RUBATO_ASSERT_OK(Push(0, step, {0, 1}, 8, step, block));
    }
  }
  Parameters(0, 3);
  ASSERT_EQ(sent_.size(), 2u);  // the last block has waited
  const std::vector<float> before = Initial();
  for (int i = 0; i < 32; ++i) {
    EXPECT_EQ(sent_[i / 16].second.values()[i % 16] == before[i], i < 20) << i;
  }
}

TEST_F(FloatShardTest, RefusesAViewThatDoesNotPlaceEachBlock) {
  Start(SyncMode(), 1, 1);
  view_.mutable_shards(0)->set_end_block(2);
  proto::CoordinatorMessage message;
  *message.mutable_view() = view_;
  Tell(message);
  ASSERT_EQ(said_.size(), 1u);
  EXPECT_THAT(said_[0].failure().reason(), HasSubstr("gives block 2 to no shard"));
}

// A version that is still being sent must not change under the sender.
TEST_F(FloatShardTest, WhatHasBeenSentStaysAsItWas) {
  Start(AsyncMode(), 1, 1);
  Open();
  Parameters(0xffffffff, 0);
  const Payload kept = sent_[0].second;
  const std::vector<float> before(kept.values().begin(), kept.values().end());
  for (uint64_t clock = 0; clock < 5; ++clock)
    RUBATO_ASSERT_OK(Push(0, clock, {0, 1}, 8, clock, 0));
  EXPECT_EQ(std::vector<float>(kept.values().begin(), kept.values().end()), before);
  EXPECT_NE(Parameters(0xffffffff, 0)[0], before[0]);
}

// A worker that takes over a lost one's part of a step may ask for the version before, also when a
// decision has left the step out on this shard.
TEST_F(FloatShardTest, AStepThatIsLeftOutHasAVersionBefore) {
  Start(SyncMode(), 2, 1, "cluster { workers { start: 2 } }");
  view_.set_verdict_steps(true);
  Open();
  for (int64_t block = 0; block < 3; ++block) {
    RUBATO_ASSERT_OK(Push(0, 0, {0, 1}, 8, 1, block));
  }
  ASSERT_TRUE(said_.back().has_question());
  proto::CoordinatorMessage decision;
  decision.mutable_decision()->set_unit(0);
  decision.mutable_decision()->mutable_verdict()->set_apply(false);
  Tell(decision);
  EXPECT_EQ(Parameters(1, 0), Initial());
  EXPECT_EQ(sent_[0].first.version, 0u);
  EXPECT_EQ(Parameters(1, 1), Initial());
  EXPECT_EQ(sent_[0].first.version, 1u);
}

TEST_F(FloatShardTest, RefusesFramesThatDoNotFit) {
  Start(SyncMode(), 1, 1);
  Frame push;
  push.kind = FrameKind::kPush;
  EXPECT_THAT(Receive(push),
              IsError(absl::StatusCode::kFailedPrecondition, HasSubstr("not begun")));
  Open();
  push.view = 1;
  push.incarnation = 1;
  const std::vector<float> twelve(12);
  EXPECT_THAT(
      Receive(push, absl::MakeConstSpan(twelve)),
      IsError(absl::StatusCode::kInvalidArgument, HasSubstr("12 values; block 0 holds 16")));
  push.block = 3;
  EXPECT_THAT(Receive(push), IsError(absl::StatusCode::kInvalidArgument, HasSubstr("block 3")));
  push.block = ~uint64_t{0};
  EXPECT_THAT(Receive(push), IsError(absl::StatusCode::kInvalidArgument, HasSubstr("block -1")));
  Frame pull;
  pull.kind = FrameKind::kPull;
  pull.block_count = ~uint32_t{0};
  EXPECT_THAT(Receive(pull), IsError(absl::StatusCode::kInvalidArgument, HasSubstr("owns blocks")));
  Frame parameters;
  parameters.kind = FrameKind::kParameters;
  EXPECT_THAT(Receive(parameters),
              IsError(absl::StatusCode::kInvalidArgument, HasSubstr("pushes and pulls")));
}

// Whose shards' snapshots are copied, up to so many bytes.
class SnapshotTest : public FloatShardTest, public ::testing::WithParamInterface<int64_t> {};

INSTANTIATE_TEST_SUITE_P(, SnapshotTest, ::testing::Values(0, 1 << 20));

// Training goes on between the request and the copy, and after it: the copy holds one version with
// its slots.
TEST_P(SnapshotTest, HoldsOneVersionAndItsSlotsWhateverComesAfter) {
  memory_.copied = GetParam();
  Start(SyncMode(), 1, 1);
  Open();
  std::vector<float> w = Initial(), m(kValues);
  proto::CoordinatorMessage message;
  message.mutable_snapshot()->set_id(7);
  message.mutable_snapshot()->set_step(2);
  Tell(message);
  for (uint64_t step = 0; step < 4; ++step) {
    for (int64_t block = 2; block >= 0; --block) {
      const int64_t size = block == 2 ? 8 : 16;
      Frame frame;
      frame.kind = FrameKind::kPush;
      frame.view = frame.incarnation = 1;
      frame.clock = step;
      frame.block = block;
      frame.samples = frame.weight = 1;
      frame.end_leaf = 1;
      auto values = std::make_shared<std::vector<float>>(Gradient(step));
      RUBATO_ASSERT_OK(Receive(frame, absl::MakeConstSpan(*values).subspan(block * 16, size)));
    }
    if (step >= 2) continue;
    const std::vector<float> g = Gradient(step);
    for (int64_t i = 0; i < kValues; ++i) {
      m[i] = step == 0 ? g[i] : 0.75f * m[i] + g[i];
      w[i] = w[i] - 0.5f * m[i];
    }
  }
  ASSERT_TRUE(said_.back().has_snapshot_copied());
  EXPECT_EQ(said_.back().snapshot_copied().blocks_size(), 3);
  for (const proto::BlockState& state : said_.back().snapshot_copied().blocks()) {
    EXPECT_EQ(state.version(), 2);
  }
  std::map<uint32_t, std::vector<float>> slots;
  Frame pull;
  pull.kind = FrameKind::kPull;
  pull.worker = kObserver;
  pull.snapshot = 7;
  pull.block_count = 3;
  by_slot_ = &slots;
  RUBATO_ASSERT_OK(Receive(pull));
  by_slot_ = nullptr;
  EXPECT_EQ(slots[0], w);
  EXPECT_EQ(slots[1], m);
  message.mutable_release_snapshot()->set_id(7);
  Tell(message);
  EXPECT_THAT(Receive(pull), IsError(absl::StatusCode::kNotFound, HasSubstr("snapshot 7")));
}

// A shard that goes on from a checkpoint ends where one that never stopped ends.
TEST_F(FloatShardTest, OnArrivalARestoredBlockTakesNothingTwice) {
  Start(AsyncMode(), 1, 1);
  view_.set_restore_key(7);
  Open();
  proto::CoordinatorMessage message;
  for (int64_t block = 0; block < 3; ++block) {
    proto::BlockState* state = message.mutable_restore()->add_blocks();
    state->set_block(block);
    state->set_version(3);
    state->set_units_below(2);
    state->add_units_above(4);
  }
  message.mutable_restore()->set_slots(1);
  Tell(message);
  EXPECT_FALSE(said_.back().has_shard_restored());
  const std::vector<float> values = Gradient(50);
  for (uint32_t slot = 0; slot < 2; ++slot) {
    for (int64_t block = 0; block < 3; ++block) {
      Frame frame;
      frame.kind = FrameKind::kRestore;
      frame.worker = kObserver;
      frame.block = block;
      frame.slot = slot;
      frame.unit = view_.restore_key();
      RUBATO_ASSERT_OK(
          Receive(frame, absl::MakeConstSpan(values).subspan(block * 16, block == 2 ? 8 : 16)));
    }
  }
  EXPECT_TRUE(said_.back().has_shard_restored());
  // Contribution 4 is in the block; 2 is not. The worker's clocks count both.
  uint64_t clock = 0;
  for (const uint64_t unit : {4, 2}) {
    Frame frame;
    frame.kind = FrameKind::kPush;
    frame.view = frame.incarnation = 1;
    frame.clock = clock++;
    frame.unit = unit;
    frame.samples = frame.weight = 8;
    frame.version = 3;
    auto gradient = std::make_shared<std::vector<float>>(Gradient(unit));
    RUBATO_ASSERT_OK(Receive(frame, absl::MakeConstSpan(*gradient).subspan(0, 16)));
  }
  sent_.clear();
  Frame pull;
  pull.kind = FrameKind::kPull;
  pull.view = 1;
  pull.clock = 2;
  pull.block_count = 1;
  RUBATO_ASSERT_OK(Receive(pull));
  ASSERT_EQ(sent_.count(0), 1u) << "both clocks have been taken";
  EXPECT_EQ(sent_[0].first.version, 4u);
  const std::vector<float> g = Gradient(2);
  for (int i = 0; i < 16; ++i) {
    EXPECT_EQ(sent_[0].second.values()[i], values[i] - 0.5f * (0.75f * values[i] + g[i] * 0.125f));
  }
}

}  // namespace
}  // namespace rubato
