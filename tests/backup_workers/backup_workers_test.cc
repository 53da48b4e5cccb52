// Backup workers on three shards: a mode that no other file knows, in drawn clusters
// (tests/drawn_clusters.h), judged by its laws.
#include <iostream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "common/base/status.h"
#include "common/space/modes.h"
#include "common/space/reduction_tree.h"
#include "common/space/sum_of_squares.h"
#include "gtest/gtest.h"
#include "tests/backup_workers/backup_policy.h"
#include "tests/backup_workers/backup_workers.pb.h"
#include "tests/drawn_clusters.h"
#include "tools/simulator/small_job.h"
#include "tools/simulator/symbolic_worker.h"

namespace rubato {
namespace {

constexpr int64_t kSeeds = 300;

proto::Mode BackupMode() {
  proto::Mode mode = SyncMode();
  mode.MutableExtension(testing::backup_workers);
  return mode;
}

// The laws: on every block each step is made of all parts but one, the same on every block, at the
// version that all blocks then had. A job that clips scales them all by the norm of what is left.
class Laws : public Observer {
 public:
  Laws(const proto::Job& job, int64_t train_samples, int64_t blocks)
      : job_(job), train_samples_(train_samples), logs_(blocks) {}

  void OnView(const proto::View& view, SimTime) override { views_.push_back(view); }
  void OnApplied(int64_t block, const Frame&, const UpdateTerms& terms, int64_t version,
                 uint64_t gradient, uint64_t value) override {
    in_order_ = in_order_ && version == static_cast<int64_t>(logs_[block].size()) + 1;
    logs_[block].push_back({terms.samples, terms.factor, gradient, value});
  }

  absl::Status Check() const {
    if (!in_order_) return absl::InternalError("a block's versions do not follow one another");
    for (const std::vector<Update>& log : logs_) {
      if (static_cast<int64_t>(log.size()) != views_.back().until_step()) {
        return absl::InternalError(absl::StrFormat("a block has taken %d steps", log.size()));
      }
    }
    for (int64_t step = 0; step < views_.back().until_step(); ++step) {
      RUBATO_RETURN_IF_ERROR(CheckStep(step));
    }
    return absl::OkStatus();
  }
  int64_t judged() const { return judged_; }  // steps of which the part that was left out is known
  int64_t clipped() const { return clipped_; }

 private:
  struct Update {
    int64_t samples;
    double factor;
    uint64_t gradient, value;
  };

  uint64_t ValueAt(int64_t block, int64_t version) const {
    return version == 0 ? InitialSymbol(job_.seed(), block) : logs_[block][version - 1].value;
  }

  absl::Status CheckFactor(int64_t step) const {
    double squares = 0;
    for (const std::vector<Update>& log : logs_) {
      squares += double{NormOf(log[step].gradient)} * NormOf(log[step].gradient);
    }
    const double factor =
        job_.optimizer().has_clip_grad_norm()
            ? ClipFactor(squares, logs_[0][step].samples, job_.optimizer().clip_grad_norm())
            : 1;
    if (factor < 1) ++clipped_;
    for (const std::vector<Update>& log : logs_) {
      if (log[step].factor == factor) continue;
      return absl::InternalError(absl::StrFormat("step %d is scaled by %g on a block; expected %g",
                                                 step, log[step].factor, factor));
    }
    return absl::OkStatus();
  }

  absl::Status CheckStep(int64_t step) const {
    RUBATO_RETURN_IF_ERROR(CheckFactor(step));
    for (const std::vector<Update>& log : logs_) {
      if (log[step].samples == logs_[0][step].samples) continue;
      return absl::InternalError(
          absl::StrFormat("step %d has %d samples on one block and %d on "
                          "another",
                          step, logs_[0][step].samples, log[step].samples));
    }
    std::vector<std::vector<Range>> divisions;
    for (const proto::View& view : views_) {
      const std::vector<Range> parts = PartsOf(view, step);
      if (!parts.empty() && (divisions.empty() || !(divisions.back() == parts))) {
        divisions.push_back(parts);
      }
    }
    // What a lost worker had was cut finer: its sums are the same, but in other brackets.
    if (divisions.size() != 1 || divisions[0].size() < 2) return absl::OkStatus();
    const std::set<int64_t> possible = PartsLeftOut(step, divisions[0]);
    if (possible.size() == 1) ++judged_;
    if (!possible.empty()) return absl::OkStatus();
    return absl::InternalError(
        absl::StrFormat("step %d is not made of the same parts on all blocks", step));
  }

  // Those parts without which all blocks' gradients are what they are.
  std::set<int64_t> PartsLeftOut(int64_t step, const std::vector<Range>& parts) const {
    const SampleSchedule schedule = ScheduleOf(job_, SyncMode(), train_samples_, 0, 0);
    const ReductionTree tree(job_.train().micro_batches());
    uint64_t parameters = 0;
    const int64_t blocks = static_cast<int64_t>(logs_.size());
    for (int64_t block = 0; block < blocks; ++block) {
      parameters = AppendSymbol(parameters, ValueAt(block, step));
    }
    std::set<int64_t> possible;
    for (size_t left_out = 0; left_out < parts.size(); ++left_out) {
      bool fits = true;
      for (int64_t block = 0; block < blocks; ++block) {
        std::vector<uint64_t> symbols;
        for (size_t part = 0; part < parts.size(); ++part) {
          if (part == left_out) continue;
          for (const Range node : tree.MaximalNodes(parts[part])) {
            symbols.push_back(NodeSymbol(job_.seed(), schedule, step, node, block, parameters));
          }
        }
        uint64_t sum = symbols[0];
        for (size_t i = 1; i < symbols.size(); ++i) sum = SumSymbol(sum, symbols[i]);
        fits = fits && sum == logs_[block][step].gradient;
      }
      if (fits) possible.insert(static_cast<int64_t>(left_out));
    }
    return possible;
  }

  const proto::Job job_;
  const int64_t train_samples_;
  std::vector<std::vector<Update>> logs_;  // by block
  std::vector<proto::View> views_;
  bool in_order_ = true;
  mutable int64_t judged_ = 0, clipped_ = 0;
};

TEST(BackupWorkersTest, AllShardsMakeAStepOfTheSameContributionsUnderFaults) {
  int64_t judged = 0, clipped = 0;
  const bool all = ForEachSeed(kSeeds, [&](uint64_t seed) -> absl::Status {
    const int64_t blocks = kDrawnShards + static_cast<int64_t>(seed % 3);
    RUBATO_ASSIGN_OR_RETURN(SimulationSetting setting,
                            DrawCluster(seed, BackupMode(), PolicyWithBackup, blocks));
    Laws laws(setting.job, setting.train_samples, blocks);
    setting.observer = &laws;
    RUBATO_ASSIGN_OR_RETURN(std::unique_ptr<Simulation> simulation,
                            Simulation::Create(std::move(setting)));
    RUBATO_RETURN_IF_ERROR(simulation->Run());
    RUBATO_RETURN_IF_ERROR(laws.Check());
    judged += laws.judged();
    clipped += laws.clipped();
    return absl::OkStatus();
  });
  if (!all) return;
  std::cout << judged << " steps of which it is known what was left out, " << clipped
            << " clipped\n";
  EXPECT_GT(judged, 10 * kSeeds);
  EXPECT_GT(clipped, kSeeds);
}

// Four workers, of which one takes four times as long: in sync all steps take its time, here none
// does, but that it ends what it has begun.
TEST(BackupWorkersTest, OneSlowWorkerHoldsNobodyUp) {
  const auto seconds = [](const proto::Mode& mode) {
    SmallJob small;
    small.mode = mode;
    small.workers = small.micro_batches = 4;
    small.servers = 3;
    SimulationSetting setting = MakeSetting(small);
    setting.policies = PolicyWithBackup;
    setting.speeds = *Speeds::Parse("straggler:factor=4", 0);
    auto simulation = Simulation::Create(std::move(setting));
    EXPECT_TRUE(simulation.ok() && (*simulation)->Run().ok());
    return (*simulation)->coordinator().summary().seconds;
  };
  EXPECT_NEAR(seconds(SyncMode()), 80, 1e-6);
  EXPECT_GE(seconds(BackupMode()), 20 - 1e-6);
  EXPECT_LE(seconds(BackupMode()), 24 + 1e-6);
}

}  // namespace
}  // namespace rubato
