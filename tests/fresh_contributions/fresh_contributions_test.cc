// Fresh contributions: a mode that no other file knows, in drawn clusters (tests/drawn_clusters.h),
// judged by its laws.
#include <iostream>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "common/base/status.h"
#include "common/space/modes.h"
#include "gtest/gtest.h"
#include "tests/drawn_clusters.h"
#include "tests/fresh_contributions/fresh_contributions.pb.h"
#include "tests/fresh_contributions/fresh_policy.h"
#include "tools/simulator/observer.h"

namespace rubato {
namespace {

constexpr int64_t kSeeds = 300;

// The laws: every block takes each contribution once, and either all blocks apply it or all leave
// it out. Where a shard is one block: none is applied that is too stale for any; and if no worker
// was lost, none is left out that is too stale for none.
class Laws : public Observer {
 public:
  Laws(int64_t blocks, int64_t max_staleness) : blocks_(blocks), max_staleness_(max_staleness) {}

  void OnView(const proto::View& view, SimTime) override {
    until_ = view.until_step();
    ++views_;
  }
  void OnComputeBegins(const WorkerId& worker, uint32_t, int64_t unit, int64_t, SimTime) override {
    computed_by_[unit].insert(worker);
  }
  void OnApplied(int64_t block, const Frame& contribution, const UpdateTerms& terms,
                 int64_t version, uint64_t, uint64_t) override {
    if (terms.updates_before != version - 1 - blocks_[block].left_out) {
      violated_ = absl::InternalError(
          absl::StrFormat("version %d of block %d was made as the optimizer's update %d; %d "
                          "contributions had been left out",
                          version, block, terms.updates_before, blocks_[block].left_out));
    }
    Append(block, contribution, version, /*is_applied=*/true);
  }
  void OnSkipped(int64_t block, const Frame& contribution, int64_t, int64_t version) override {
    Append(block, contribution, version, /*is_applied=*/false);
    ++blocks_[block].left_out;
  }

  absl::Status Check(const Simulation& simulation) {
    RUBATO_RETURN_IF_ERROR(violated_);
    for (int64_t unit = 0; unit < until_; ++unit) RUBATO_RETURN_IF_ERROR(CheckUnit(unit));
    for (size_t block = 0; block < blocks_.size(); ++block) {
      if (simulation.ledger(block).skipped == blocks_[block].left_out) continue;
      return absl::InternalError(absl::StrFormat("block %d counts %d contributions left out of %d",
                                                 block, simulation.ledger(block).skipped,
                                                 blocks_[block].left_out));
    }
    return absl::OkStatus();
  }
  int64_t applied() const { return applied_; }
  // Left out though a shard alone would have applied them.
  int64_t overruled() const { return overruled_; }

 private:
  struct Taken {
    bool is_applied;
    int64_t staleness;
  };
  struct Block {
    std::map<int64_t, Taken> taken;  // by unit
    int64_t left_out = 0;
  };

  void Append(int64_t block, const Frame& contribution, int64_t version, bool is_applied) {
    const int64_t staleness = version - 1 - static_cast<int64_t>(contribution.version);
    std::map<int64_t, Taken>& taken = blocks_[block].taken;
    const bool is_first =
        taken.try_emplace(static_cast<int64_t>(contribution.unit), Taken{is_applied, staleness})
            .second;
    if (is_first && version == static_cast<int64_t>(taken.size())) return;
    violated_ = absl::InternalError(absl::StrFormat("block %d took contribution %d as version %d",
                                                    block, contribution.unit, version));
  }

  absl::Status CheckUnit(int64_t unit) {
    int64_t applied = 0, too_stale = 0;
    for (const Block& block : blocks_) {
      const auto taken = block.taken.find(unit);
      if (taken == block.taken.end()) {
        return absl::InternalError(absl::StrFormat("a block lacks contribution %d", unit));
      }
      applied += taken->second.is_applied;
      too_stale += taken->second.staleness > max_staleness_;
    }
    const int64_t count = static_cast<int64_t>(blocks_.size());
    if (applied > 0 && applied < count) {
      return absl::InternalError(
          absl::StrFormat("%d of %d blocks have applied contribution %d", applied, count, unit));
    }
    applied_ += applied > 0;
    overruled_ += applied == 0 && too_stale < count;
    // What one who was lost has sent is decided by what is known of that.
    const bool is_known = count == kDrawnShards && computed_by_[unit].size() == 1;
    if (is_known &&
        ((applied > 0 && too_stale > 0) || (views_ == 1 && applied == 0 && too_stale == 0))) {
      return absl::InternalError(absl::StrFormat("contribution %d is too stale on %d blocks; it %s",
                                                 unit, too_stale,
                                                 applied > 0 ? "is applied" : "is left out"));
    }
    return absl::OkStatus();
  }

  std::vector<Block> blocks_;
  const int64_t max_staleness_;
  std::map<int64_t, std::set<WorkerId>> computed_by_;  // by unit
  int64_t until_ = 0, views_ = 0;
  absl::Status violated_;
  int64_t applied_ = 0, overruled_ = 0;
};

TEST(FreshContributionsTest, AllShardsLeaveOutTheSameContributionsUnderFaults) {
  int64_t applied = 0, overruled = 0;
  const bool all = ForEachSeed(kSeeds, [&](uint64_t seed) -> absl::Status {
    const int64_t blocks = seed % 2 == 0 ? kDrawnShards : 5;
    const int64_t max_staleness = static_cast<int64_t>(seed % 3);
    proto::Mode mode = AsyncMode();
    mode.MutableExtension(testing::fresh_contributions)->set_max_staleness(max_staleness);
    RUBATO_ASSIGN_OR_RETURN(SimulationSetting setting,
                            DrawCluster(seed, mode, PolicyWithFreshness, blocks));
    Laws laws(blocks, max_staleness);
    setting.observer = &laws;
    RUBATO_ASSIGN_OR_RETURN(std::unique_ptr<Simulation> simulation,
                            Simulation::Create(std::move(setting)));
    RUBATO_RETURN_IF_ERROR(simulation->Run());
    RUBATO_RETURN_IF_ERROR(laws.Check(*simulation));
    applied += laws.applied();
    overruled += laws.overruled();
    return absl::OkStatus();
  });
  if (!all) return;
  std::cout << applied
            << " contributions applied; left out by all, though fresh on some shard: " << overruled
            << "\n";
  EXPECT_GT(applied, 10 * kSeeds);
  EXPECT_GT(overruled, kSeeds);
}

}  // namespace
}  // namespace rubato
