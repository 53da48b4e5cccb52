#include "server/shard/shard_engine.h"

#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "common/base/status_matchers.h"
#include "common/space/initialize.h"
#include "common/space/placement.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kValues = 40;  // in blocks of 16: two and a half

class ShardEngineTest : public ::testing::Test {
 protected:
  // The first `first` values are of one parameter, the rest of another.
  void Start(proto::View::Mode mode, int workers, int64_t leaves, const std::string& more = "",
             int64_t first = kValues) {
    ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
        "seed: 3 cluster { servers: 1 } wire { chunk: 64 } "
        "optimizer { learning_rate: 0.5 momentum: 0.75 learning_rate_parity: true } "
        "train { batch_size: 8 until { epochs: 1 } }",
        &job_));
    proto::Job changes;
    ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(more, &changes));
    job_.MergeFrom(changes);
    for (int i = 0; i < (first < kValues ? 2 : 1); ++i) {
      proto::Parameter* parameter = view_.mutable_layout()->add_parameters();
      parameter->set_name(absl::StrCat(i, ".weight"));
      parameter->add_shape(i == 0 ? first : kValues - first);
      parameter->mutable_init()->set_uniform_bound(1);
    }
    view_.set_number(1);
    view_.set_mode(mode);
    view_.set_leaves(leaves);
    view_.set_samples_per_epoch(100);
    view_.set_until_step(1000);
    for (int rank = 0; rank < workers; ++rank) {
      view_.add_members()->set_rank(rank);
      view_.mutable_members(rank)->set_incarnation(1);
    }
    Placement::Even(SpaceOf(job_, view_.layout()), 1).AddTo(&view_);
    auto engine = ShardEngine::Create(
        job_, 0,
        [this](uint64_t, const Frame& frame, const Payload& payload) {
          sent_[frame.block] = {frame, payload};
          if (by_slot_ != nullptr) {
            std::vector<float>& all = (*by_slot_)[frame.slot];
            all.insert(all.end(), payload.values().begin(), payload.values().end());
          }
        },
        [this](const proto::PeerMessage& message) { said_.push_back(message); });
    RUBATO_ASSERT_OK(engine);
    engine_ = *std::move(engine);
  }

  void Open() {
    proto::CoordinatorMessage message;
    *message.mutable_view() = view_;
    engine_->OnMessage(message);
    ASSERT_TRUE(said_.back().has_shard_opened());
  }

  // A gradient that is a pure function of its key.
  static std::vector<float> Gradient(uint64_t key) {
    RandomStream random(Key(key));
    std::vector<float> values(kValues);
    for (float& value : values) value = random.Uniform(-1, 1);
    return values;
  }

  absl::Status Push(uint32_t worker, uint64_t clock, Range node, uint32_t samples, uint64_t key,
                    int64_t block) {
    Frame frame;
    frame.kind = FrameKind::kPush;
    frame.view = 1;
    frame.worker = worker;
    frame.incarnation = 1;
    frame.clock = frame.unit = clock;
    frame.block = block;
    frame.samples = samples;
    frame.first_leaf = node.begin;
    frame.end_leaf = node.end;
    auto values = std::make_shared<std::vector<float>>(Gradient(key));
    const size_t begin = block * 16;
    return engine_->OnFrame(1, frame, absl::MakeConstSpan(*values).subspan(begin, 16));
  }

  std::vector<float> Parameters(uint32_t worker, uint64_t clock) {
    Frame pull;
    pull.kind = FrameKind::kPull;
    pull.view = 1;
    pull.worker = worker;
    pull.clock = clock;
    pull.block_count = 3;
    sent_.clear();
    RUBATO_EXPECT_OK(engine_->OnFrame(1, pull, {}));
    std::vector<float> all;
    for (const auto& [block, message] : sent_) {
      all.insert(all.end(), message.second.values().begin(), message.second.values().end());
    }
    return all;
  }

  std::vector<float> Initial() const {
    std::vector<float> all;
    for (const proto::Parameter& parameter : view_.layout().parameters()) {
      std::vector<float> values(parameter.shape(0));
      InitializeRange(parameter, job_.seed(), 0, absl::MakeSpan(values));
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  }

  proto::Job job_;
  proto::View view_;
  std::unique_ptr<ShardEngine> engine_;
  std::map<uint64_t, std::pair<Frame, Payload>> sent_;
  std::vector<proto::PeerMessage> said_;
  std::map<uint32_t, std::vector<float>>* by_slot_ = nullptr;  // what is sent, put together by slot
};

TEST_F(ShardEngineTest, BeginsWithTheInitialValuesWhateverTheBlocks) {
  Start(proto::View::MODE_SYNC, 1, 1);
  Open();
  EXPECT_EQ(Parameters(0, 0), Initial());
}

// The formulas written out: sums along the tree, one division by the weight, momentum.
TEST_F(ShardEngineTest, SyncStepsAreMomentumStepsOnTheWeightedMean) {
  Start(proto::View::MODE_SYNC, 2, 3);
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

TEST_F(ShardEngineTest, OnArrivalTheRateIsScaledByTheShareOfABatch) {
  Start(proto::View::MODE_ASYNC, 2, 1);
  Open();
  RUBATO_ASSERT_OK(Push(0, 0, {0, 1}, 2, 7, 0));  // 2 of 8 samples
  const std::vector<float> parameters = Parameters(0xffffffff, 0), before = Initial(),
                           g = Gradient(7);
  for (int i = 0; i < 16; ++i) {
    EXPECT_EQ(parameters[i], before[i] - 0.125f * (g[i] * 0.5f)) << i;
  }
}

// The border between them lies within a block that is not the first.
TEST_F(ShardEngineTest, EachParameterHasTheRateOfItsGroupAndTheSchedulesFactor) {
  Start(proto::View::MODE_ASYNC, 1, 1,
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

TEST_F(ShardEngineTest, AFrozenParameterKeepsItsBitsAndABlockOfNothingElseGoesOn) {
  Start(proto::View::MODE_SYNC, 1, 1, "optimizer { groups { match: '0.*' learning_rate: 0 } }",
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

// A version that is still being sent must not change under the sender.
TEST_F(ShardEngineTest, WhatHasBeenSentStaysAsItWas) {
  Start(proto::View::MODE_ASYNC, 1, 1);
  Open();
  Parameters(0xffffffff, 0);
  const Payload kept = sent_[0].second;
  const std::vector<float> before(kept.values().begin(), kept.values().end());
  for (uint64_t clock = 0; clock < 5; ++clock)
    RUBATO_ASSERT_OK(Push(0, clock, {0, 1}, 8, clock, 0));
  EXPECT_EQ(std::vector<float>(kept.values().begin(), kept.values().end()), before);
  EXPECT_NE(Parameters(0xffffffff, 0)[0], before[0]);
}

TEST_F(ShardEngineTest, RefusesFramesThatDoNotFit) {
  Start(proto::View::MODE_SYNC, 1, 1);
  Frame push;
  push.kind = FrameKind::kPush;
  EXPECT_THAT(engine_->OnFrame(1, push, {}),
              IsError(absl::StatusCode::kFailedPrecondition, HasSubstr("not begun")));
  Open();
  push.view = 1;
  push.incarnation = 1;
  const std::vector<float> twelve(12);
  EXPECT_THAT(
      engine_->OnFrame(1, push, absl::MakeConstSpan(twelve)),
      IsError(absl::StatusCode::kInvalidArgument, HasSubstr("12 values; block 0 holds 16")));
  push.block = 3;
  EXPECT_THAT(engine_->OnFrame(1, push, {}),
              IsError(absl::StatusCode::kInvalidArgument, HasSubstr("block 3")));
  push.block = ~uint64_t{0};
  EXPECT_THAT(engine_->OnFrame(1, push, {}),
              IsError(absl::StatusCode::kInvalidArgument, HasSubstr("block -1")));
  Frame pull;
  pull.kind = FrameKind::kPull;
  pull.block_count = ~uint32_t{0};
  EXPECT_THAT(engine_->OnFrame(1, pull, {}),
              IsError(absl::StatusCode::kInvalidArgument, HasSubstr("owns blocks")));
  Frame parameters;
  parameters.kind = FrameKind::kParameters;
  EXPECT_THAT(engine_->OnFrame(1, parameters, {}),
              IsError(absl::StatusCode::kInvalidArgument, HasSubstr("pushes and pulls")));
}

TEST_F(ShardEngineTest, RefusesAViewThatDoesNotPlaceEachBlock) {
  Start(proto::View::MODE_SYNC, 1, 1);
  view_.mutable_shards(0)->set_end_block(2);
  proto::CoordinatorMessage message;
  *message.mutable_view() = view_;
  engine_->OnMessage(message);
  ASSERT_EQ(said_.size(), 1u);
  EXPECT_THAT(said_[0].failure().reason(), HasSubstr("gives block 2 to no shard"));
}

// Training goes on between the request and the copy, and after it: the copy holds one version with
// its slots.
TEST_F(ShardEngineTest, ASnapshotHoldsOneVersionAndItsSlotsWhateverComesAfter) {
  Start(proto::View::MODE_SYNC, 1, 1);
  Open();
  std::vector<float> w = Initial(), m(kValues);
  proto::CoordinatorMessage message;
  message.mutable_snapshot()->set_id(7);
  message.mutable_snapshot()->set_step(2);
  engine_->OnMessage(message);
  for (uint64_t step = 0; step < 4; ++step) {
    for (int64_t block = 2; block >= 0; --block) {
      const int64_t size = block == 2 ? 8 : 16;
      Frame frame;
      frame.kind = FrameKind::kPush;
      frame.view = frame.incarnation = 1;
      frame.clock = step;
      frame.block = block;
      frame.samples = 1;
      frame.end_leaf = 1;
      auto values = std::make_shared<std::vector<float>>(Gradient(step));
      RUBATO_ASSERT_OK(
          engine_->OnFrame(1, frame, absl::MakeConstSpan(*values).subspan(block * 16, size)));
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
  RUBATO_ASSERT_OK(engine_->OnFrame(1, pull, {}));
  by_slot_ = nullptr;
  EXPECT_EQ(slots[0], w);
  EXPECT_EQ(slots[1], m);
  message.mutable_release_snapshot()->set_id(7);
  engine_->OnMessage(message);
  EXPECT_THAT(engine_->OnFrame(1, pull, {}),
              IsError(absl::StatusCode::kNotFound, HasSubstr("snapshot 7")));
}

// A shard that goes on from a checkpoint ends where one that never stopped ends.
TEST_F(ShardEngineTest, OnArrivalARestoredBlockTakesNothingTwice) {
  Start(proto::View::MODE_ASYNC, 1, 1);
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
  engine_->OnMessage(message);
  EXPECT_FALSE(said_.back().has_shard_restored());
  const std::vector<float> values = Gradient(50);
  for (uint32_t slot = 0; slot < 2; ++slot) {
    for (int64_t block = 0; block < 3; ++block) {
      Frame frame;
      frame.kind = FrameKind::kRestore;
      frame.worker = kObserver;
      frame.block = block;
      frame.slot = slot;
      RUBATO_ASSERT_OK(engine_->OnFrame(
          1, frame, absl::MakeConstSpan(values).subspan(block * 16, block == 2 ? 8 : 16)));
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
    frame.samples = 8;
    frame.version = 3;
    auto gradient = std::make_shared<std::vector<float>>(Gradient(unit));
    RUBATO_ASSERT_OK(engine_->OnFrame(1, frame, absl::MakeConstSpan(*gradient).subspan(0, 16)));
  }
  sent_.clear();
  Frame pull;
  pull.kind = FrameKind::kPull;
  pull.view = 1;
  pull.clock = 2;
  pull.block_count = 1;
  RUBATO_ASSERT_OK(engine_->OnFrame(1, pull, {}));
  ASSERT_EQ(sent_.count(0), 1u) << "both clocks have been taken";
  EXPECT_EQ(sent_[0].first.version, 4u);
  const std::vector<float> g = Gradient(2);
  for (int i = 0; i < 16; ++i) {
    EXPECT_EQ(sent_[0].second.values()[i], values[i] - 0.5f * (0.75f * values[i] + g[i] * 0.125f));
  }
}

// One parameter under an optimizer, in double precision, by the formulas of PyTorch's
// documentation.
class ReferenceParameter {
 public:
  ReferenceParameter(const proto::Optimizer& settings, double value)
      : settings_(settings), value_(value) {}

  void Update(double gradient, double rate) {
    ++updates_;
    if (settings_.name() == proto::Optimizer::NAME_SGD) {
      a_ = updates_ == 1 ? gradient : settings_.momentum() * a_ + gradient;
      value_ -= rate * a_;
    } else if (settings_.name() == proto::Optimizer::NAME_ADAGRAD) {
      a_ += gradient * gradient;
      value_ -= rate * gradient / (std::sqrt(a_) + settings_.eps());
    } else if (settings_.name() == proto::Optimizer::NAME_RMSPROP) {
      a_ = settings_.alpha() * a_ + (1 - settings_.alpha()) * gradient * gradient;
      b_ = settings_.momentum() * b_ + gradient / (std::sqrt(a_) + settings_.eps());
      value_ -= rate * b_;
    } else {
      const double beta1 = settings_.betas(0), beta2 = settings_.betas(1);
      a_ = beta1 * a_ + (1 - beta1) * gradient;
      b_ = beta2 * b_ + (1 - beta2) * gradient * gradient;
      const double mean = a_ / (1 - std::pow(beta1, updates_));
      const double square = b_ / (1 - std::pow(beta2, updates_));
      value_ -= rate * mean / (std::sqrt(square) + settings_.eps());
    }
  }

  double value() const { return value_; }
  double slot(size_t index) const { return index == 0 ? a_ : b_; }

 private:
  const proto::Optimizer& settings_;
  double value_, a_ = 0, b_ = 0;
  int updates_ = 0;
};

struct OptimizerCase {
  const char* name;
  const char* settings;
  size_t slots;
};
void PrintTo(const OptimizerCase& c, std::ostream* out) { *out << c.name; }

// Three workers push without pause; snapshots are asked for at random moments, also when a
// contribution has reached some blocks only, and read later.
class SnapshotOnArrivalTest : public ShardEngineTest,
                              public ::testing::WithParamInterface<OptimizerCase> {
 protected:
  struct Pushed {
    int64_t unit;
    uint32_t samples;
  };
  struct Snapshot {
    std::vector<proto::BlockState> blocks;
    std::map<uint32_t, std::vector<float>> floats;  // by slot, 0: the parameters
  };

  static Range Values(int64_t block) {
    return {block * 16, std::min<int64_t>(kValues, block * 16 + 16)};
  }

  void PushUnit(uint32_t worker, int64_t clock, const Pushed& pushed, int64_t block) {
    Frame frame;
    frame.kind = FrameKind::kPush;
    frame.view = frame.incarnation = 1;
    frame.worker = worker;
    frame.clock = clock;
    frame.unit = pushed.unit;
    frame.block = block;
    frame.samples = pushed.samples;
    frame.end_leaf = 1;
    auto values = std::make_shared<std::vector<float>>(Gradient(pushed.unit));
    const Range range = Values(block);
    RUBATO_ASSERT_OK(engine_->OnFrame(
        1, frame, absl::MakeConstSpan(*values).subspan(range.begin, range.size())));
  }

  Snapshot Read(uint32_t id, const proto::SnapshotCopied& copied) {
    Snapshot snapshot;
    snapshot.blocks.assign(copied.blocks().begin(), copied.blocks().end());
    Frame pull;
    pull.kind = FrameKind::kPull;
    pull.worker = kObserver;
    pull.snapshot = id;
    pull.block_count = 3;
    by_slot_ = &snapshot.floats;
    RUBATO_EXPECT_OK(engine_->OnFrame(1, pull, {}));
    by_slot_ = nullptr;
    proto::CoordinatorMessage message;
    message.mutable_release_snapshot()->set_id(id);
    engine_->OnMessage(message);
    return snapshot;
  }

  // What the block says that it holds is what was pushed to it first, and parameters and slots are
  // those after just these updates.
  void ExpectAgrees(const Snapshot& snapshot) const {
    ASSERT_EQ(snapshot.floats.size(), 1 + GetParam().slots);
    ASSERT_EQ(snapshot.blocks.size(), 3u);
    const std::vector<float> initial = Initial();
    for (const proto::BlockState& state : snapshot.blocks) {
      const std::vector<Pushed>& log = logs_[state.block()];
      ASSERT_LE(state.version(), static_cast<int64_t>(log.size()));
      std::set<int64_t> said, pushed;
      for (int64_t unit = 0; unit < state.units_below(); ++unit) said.insert(unit);
      said.insert(state.units_above().begin(), state.units_above().end());
      int64_t samples = 0;
      for (int64_t i = 0; i < state.version(); ++i) {
        pushed.insert(log[i].unit);
        samples += log[i].samples;
      }
      EXPECT_EQ(said, pushed);
      EXPECT_EQ(state.samples(), samples);
      for (int64_t i = Values(state.block()).begin; i < Values(state.block()).end; ++i) {
        ReferenceParameter reference(job_.optimizer(), initial[i]);
        for (int64_t k = 0; k < state.version(); ++k) {
          reference.Update(Gradient(log[k].unit)[i] / log[k].samples,
                           job_.optimizer().learning_rate() * log[k].samples / 8);
        }
        EXPECT_NEAR(snapshot.floats.at(0)[i], reference.value(), 2e-5);
        for (size_t slot = 0; slot < GetParam().slots; ++slot) {
          const double expected = reference.slot(slot);
          EXPECT_NEAR(snapshot.floats.at(slot + 1)[i], expected, 1e-5 * (1 + std::abs(expected)));
        }
      }
    }
  }

  // A new engine that goes on from the snapshot, with all that was pushed to each block after it.
  // What some block lacks is given out again, and reaches those that have it, too.
  std::vector<float> GoOn(const Snapshot& snapshot) {
    view_.clear_layout();
    view_.clear_members();
    view_.clear_shards();
    Start(proto::View::MODE_ASYNC, 1, 1, GetParam().settings);
    Open();
    proto::CoordinatorMessage message;
    for (const proto::BlockState& state : snapshot.blocks) {
      *message.mutable_restore()->add_blocks() = state;
    }
    message.mutable_restore()->set_slots(GetParam().slots);
    engine_->OnMessage(message);
    for (const auto& [slot, floats] : snapshot.floats) {
      for (int64_t block = 0; block < 3; ++block) {
        Frame frame;
        frame.kind = FrameKind::kRestore;
        frame.worker = kObserver;
        frame.block = block;
        frame.slot = slot;
        const Range range = Values(block);
        RUBATO_EXPECT_OK(engine_->OnFrame(
            1, frame, absl::MakeConstSpan(floats).subspan(range.begin, range.size())));
      }
    }
    EXPECT_TRUE(said_.back().has_shard_restored());
    int64_t whole = std::numeric_limits<int64_t>::max();
    for (const proto::BlockState& state : snapshot.blocks) {
      whole = std::min(whole, state.units_below());
    }
    for (int64_t block = 0; block < 3; ++block) {
      int64_t clock = 0;
      for (const Pushed& pushed : logs_[block]) {
        if (pushed.unit >= whole) PushUnit(0, clock++, pushed, block);
      }
    }
    return Parameters(kObserver, 0);
  }

  std::vector<std::vector<Pushed>> logs_{3};  // by block, in the order of arrival
};

TEST_P(SnapshotOnArrivalTest, SlotsAgreeWithParametersAndTheRestGoesOnToTheSameBits) {
  Start(proto::View::MODE_ASYNC, 3, 1, GetParam().settings);
  Open();
  RandomStream random(Key(1, GetParam().name));
  struct Worker {
    Pushed pushed{-1, 0};
    std::vector<int64_t> blocks;  // that the contribution has still to reach
    int64_t clock = -1;
  };
  std::vector<Worker> workers(3);
  int64_t next_unit = 0;
  std::map<uint32_t, proto::SnapshotCopied> open;
  std::vector<Snapshot> snapshots;
  uint32_t id = 0;
  bool torn = false;  // some snapshot has caught a part of a contribution
  for (int i = 0; i < 400; ++i) {
    const uint32_t rank = random.Below(3);
    Worker& worker = workers[rank];
    if (worker.blocks.empty()) {
      worker.pushed = {next_unit++, 1 + random.Below(8)};
      worker.blocks = {2, 0, 1};
      ++worker.clock;
    }
    const int64_t block = worker.blocks.back();
    worker.blocks.pop_back();
    logs_[block].push_back(worker.pushed);
    PushUnit(rank, worker.clock, worker.pushed, block);
    if (random.Below(10) == 0) {
      proto::CoordinatorMessage message;
      message.mutable_snapshot()->set_id(++id);
      engine_->OnMessage(message);
      ASSERT_TRUE(said_.back().has_snapshot_copied());
      open[id] = said_.back().snapshot_copied();
      const auto& blocks = open[id].blocks();
      torn = torn || blocks[0].version() != blocks[1].version();
    }
    if (!open.empty() && random.Below(20) == 0) {
      snapshots.push_back(Read(open.begin()->first, open.begin()->second));
      open.erase(open.begin());
    }
  }
  ASSERT_GE(snapshots.size(), 10u);
  EXPECT_TRUE(torn);
  const std::vector<float> end = Parameters(kObserver, 0);
  for (const Snapshot& snapshot : snapshots) ExpectAgrees(snapshot);
  for (size_t i = 0; i < snapshots.size(); i += 3) EXPECT_EQ(GoOn(snapshots[i]), end) << i;
}

INSTANTIATE_TEST_SUITE_P(
    , SnapshotOnArrivalTest,
    ::testing::Values(
        OptimizerCase{"Momentum", "optimizer { learning_rate: 0.01 momentum: 0.9 }", 1},
        OptimizerCase{"Adam",
                      "optimizer { name: NAME_ADAM learning_rate: 0.01 betas: 0.9 betas: 0.99 "
                      "eps: 1e-4 momentum: 0 }",
                      2},
        OptimizerCase{"RmsProp",
                      "optimizer { name: NAME_RMSPROP learning_rate: 0.003 alpha: 0.9 eps: 1e-2 "
                      "momentum: 0.5 }",
                      2},
        OptimizerCase{"Adagrad",
                      "optimizer { name: NAME_ADAGRAD learning_rate: 0.02 eps: 1e-4 momentum: 0 }",
                      1}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace rubato
