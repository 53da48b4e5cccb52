// Backup workers on three shards: a mode that no other file knows, in drawn clusters with drawn
// faults (tools/simulator/scenario.h), judged by its laws. The environment may say which:
//   RUBATO_SEED=123    this one alone, with what the coordinator says
//   RUBATO_MUTANT=1    the policy has a bug on purpose: a seed must fail
#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "common/base/status.h"
#include "common/base/status_matchers.h"
#include "common/space/modes.h"
#include "common/space/reduction_tree.h"
#include "gtest/gtest.h"
#include "tests/backup_workers/backup_policy.h"
#include "tests/backup_workers/backup_workers.pb.h"
#include "tools/simulator/scenario.h"
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
// version that all blocks then had.
class Laws : public Observer {
 public:
  Laws(const proto::Job& job, int64_t train_samples, int64_t blocks)
      : job_(job), train_samples_(train_samples), logs_(blocks) {}

  void OnView(const proto::View& view, SimTime) override { views_.push_back(view); }
  void OnApplied(int64_t block, const Frame&, const UpdateTerms& terms, int64_t version,
                 uint64_t gradient, uint64_t value) override {
    in_order_ = in_order_ && version == static_cast<int64_t>(logs_[block].size()) + 1;
    logs_[block].push_back({terms.samples, gradient, value});
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

 private:
  struct Update {
    int64_t samples;
    uint64_t gradient, value;
  };

  uint64_t ValueAt(int64_t block, int64_t version) const {
    return version == 0 ? InitialSymbol(job_.seed(), block) : logs_[block][version - 1].value;
  }

  absl::Status CheckStep(int64_t step) const {
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
  mutable int64_t judged_ = 0;
};

absl::Status RunSeed(uint64_t seed, int64_t* judged, bool tells) {
  Scenario scenario = Scenario::Draw(seed);
  scenario.switches.clear();
  scenario.checkpoints.clear();
  // A shard's death ends the job in any mode.
  const auto kills_shard = [](const Fault& fault) { return fault.kind == Fault::Kind::kKillShard; };
  scenario.faults.erase(std::remove_if(scenario.faults.begin(), scenario.faults.end(), kills_shard),
                        scenario.faults.end());
  SmallJob& job = scenario.job;
  job.mode = BackupMode();
  job.schedule.clear();
  job.leaves_out = false;
  job.clip_grad_norm = 0;
  job.checkpoint_every = 0;
  job.servers = 3;
  job.blocks = 3 + static_cast<int64_t>(seed % 3);
  RUBATO_ASSIGN_OR_RETURN(SimulationSetting setting, SettingOf(scenario));
  setting.policies = PolicyWithBackup;
  Laws laws(setting.job, setting.train_samples, job.blocks);
  setting.observer = &laws;
  if (tells) {
    std::cout << scenario.ToString() << "\n";
    setting.callbacks.on_text = [](bool, const std::string& text, absl::Time now) {
      std::cout << absl::FormatDuration(now - SimStart()) << " " << text << "\n";
    };
  }
  RUBATO_ASSIGN_OR_RETURN(std::unique_ptr<Simulation> simulation,
                          Simulation::Create(std::move(setting)));
  RUBATO_RETURN_IF_ERROR(simulation->Run());
  RUBATO_RETURN_IF_ERROR(laws.Check());
  *judged += laws.judged();
  return absl::OkStatus();
}

TEST(BackupWorkersTest, AllShardsMakeAStepOfTheSameContributionsUnderFaults) {
  const char* const only = std::getenv("RUBATO_SEED");
  uint64_t first = 0;
  const bool is_one = only != nullptr && absl::SimpleAtoi(only, &first);
  int64_t failed = 0, judged = 0;
  for (uint64_t seed = first; seed < (is_one ? first + 1 : kSeeds); ++seed) {
    const absl::Status status = RunSeed(seed, &judged, is_one);
    if (status.ok()) continue;
    ++failed;
    if (std::getenv("RUBATO_MUTANT") != nullptr) {
      std::cout << "caught by seed " << seed << ": " << status.message() << "\n";
      return;
    }
    ADD_FAILURE() << status << "\nreplay with RUBATO_SEED=" << seed;
    if (failed == 3) return;
  }
  ASSERT_EQ(std::getenv("RUBATO_MUTANT"), nullptr) << "the mutant was not caught";
  std::cout << judged << " steps of which it is known what was left out\n";
  EXPECT_GT(judged, is_one ? 0 : 10 * kSeeds);
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
