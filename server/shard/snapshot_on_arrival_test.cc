// Snapshots that are taken on arrival: each block as it is at that moment.
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <vector>

#include "common/space/modes.h"
#include "server/shard/float_shard.h"

namespace rubato {
namespace {

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
class SnapshotOnArrivalTest : public FloatShardTest,
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
    frame.samples = frame.weight = pushed.samples;
    frame.end_leaf = 1;
    auto values = std::make_shared<std::vector<float>>(Gradient(pushed.unit));
    const Range range = Values(block);
    RUBATO_ASSERT_OK(
        Receive(frame, absl::MakeConstSpan(*values).subspan(range.begin, range.size())));
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
    RUBATO_EXPECT_OK(Receive(pull));
    by_slot_ = nullptr;
    proto::CoordinatorMessage message;
    message.mutable_release_snapshot()->set_id(id);
    Tell(message);
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
      for (const proto::UnitRun& run : state.unit_runs()) {
        for (int64_t unit = run.begin(); unit < run.end(); ++unit) said.insert(unit);
      }
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

  // A new shard that goes on from the snapshot, with all that was pushed to each block after it.
  // What some block lacks is given out again, and reaches those that have it, too.
  std::vector<float> GoOn(const Snapshot& snapshot) {
    view_.clear_layout();
    view_.clear_members();
    view_.clear_shards();
    Start(AsyncMode(), 1, 1, GetParam().settings);
    view_.set_restore_key(7);
    Open();
    proto::CoordinatorMessage message;
    for (const proto::BlockState& state : snapshot.blocks) {
      *message.mutable_restore()->add_blocks() = state;
    }
    message.mutable_restore()->set_slots(GetParam().slots);
    Tell(message);
    for (const auto& [slot, floats] : snapshot.floats) {
      for (int64_t block = 0; block < 3; ++block) {
        Frame frame;
        frame.kind = FrameKind::kRestore;
        frame.worker = kObserver;
        frame.block = block;
        frame.slot = slot;
        frame.unit = view_.restore_key();
        const Range range = Values(block);
        RUBATO_EXPECT_OK(
            Receive(frame, absl::MakeConstSpan(floats).subspan(range.begin, range.size())));
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
  Start(AsyncMode(), 3, 1, GetParam().settings);
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
    if (open.empty() && random.Below(5) == 0) {  // a new one would replace it
      proto::CoordinatorMessage message;
      message.mutable_snapshot()->set_id(++id);
      Tell(message);
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
