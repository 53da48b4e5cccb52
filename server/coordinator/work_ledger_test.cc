#include "server/coordinator/work_ledger.h"

#include <algorithm>
#include <optional>
#include <random>
#include <set>
#include <vector>

#include "gtest/gtest.h"

namespace rubato {
namespace {

constexpr WorkerId kAnn{0, 1}, kBob{1, 1};

TEST(WorkLedgerTest, UnitsAreGivenInOrderAndNoneBeyondTheEnd) {
  WorkLedger ledger;
  EXPECT_EQ(ledger.Give(kAnn, 2), 0);
  EXPECT_EQ(ledger.Give(kBob, 2), 1);
  EXPECT_EQ(ledger.Give(kAnn, 2), std::nullopt);
  EXPECT_EQ(ledger.Waiting(kAnn), 1);
  EXPECT_EQ(ledger.under_way(), 2);
}

TEST(WorkLedgerTest, WhatIsToBeDoneAgainComesFirst) {
  WorkLedger ledger(/*first=*/7, /*redo=*/{5, 3});
  EXPECT_EQ(ledger.redo(), 2);
  EXPECT_EQ(ledger.Give(kAnn, 8), 3);
  EXPECT_EQ(ledger.Give(kAnn, 8), 5);
  EXPECT_EQ(ledger.Give(kAnn, 8), 7);
}

TEST(WorkLedgerTest, AUnitOfALostWorkerThatHadBeenComputedIsNotNewToWhoComputesItAgain) {
  WorkLedger ledger;
  ledger.Give(kAnn, 2);
  ledger.Give(kAnn, 2);
  EXPECT_TRUE(ledger.OnComputed(kAnn, 0, /*clock=*/0, /*left_out=*/false));
  ledger.OnLost(kAnn, {UnitSet(), UnitSet()}, {});
  EXPECT_EQ(ledger.counts().lost, 2);
  EXPECT_EQ(ledger.Give(kBob, 2), 0);
  EXPECT_EQ(ledger.Give(kBob, 2), 1);
  EXPECT_FALSE(ledger.OnComputed(kBob, 0, 0, false));
  EXPECT_TRUE(ledger.OnComputed(kBob, 1, 1, false));
}

TEST(WorkLedgerTest, OneThatIsAppliedOnSomeShardsOnlyIsPartialAndDoneAgain) {
  WorkLedger ledger;
  for (int unit = 0; unit < 3; ++unit) {
    ledger.Give(kAnn, 3);
    ledger.OnComputed(kAnn, unit, unit, false);
  }
  // Of two shards, the second holds unit 0 alone; and of unit 2 some block of the first has a part.
  ledger.OnLost(kAnn, {UnitSet(2), UnitSet(1)}, {2});
  EXPECT_EQ(ledger.counts().applied, 1);
  EXPECT_EQ(ledger.counts().partial, 2);
  EXPECT_EQ(ledger.counts().lost, 0);
  EXPECT_EQ(ledger.Give(kBob, 3), 1);
  EXPECT_EQ(ledger.Give(kBob, 3), 2);
}

TEST(WorkLedgerTest, WhoLeavesGivesBackWhatItHasNotComputed) {
  WorkLedger ledger;
  ledger.Give(kAnn, 2);
  ledger.Give(kAnn, 2);
  ledger.OnComputed(kAnn, 0, 0, false);
  ledger.OnLeaving(kAnn);
  EXPECT_EQ(ledger.counts().given, 1);
  EXPECT_EQ(ledger.under_way(), 1);
  ledger.OnApplied(kAnn, 1);
  EXPECT_EQ(ledger.under_way(), 0);
  EXPECT_EQ(ledger.Give(kBob, 2), 1);
}

TEST(WorkLedgerTest, WhatWasNotGivenToAWorkerIsNotItsToCompute) {
  WorkLedger ledger;
  ledger.Give(kAnn, 1);
  EXPECT_FALSE(ledger.OnComputed(kBob, 0, 0, false));
  EXPECT_EQ(ledger.Waiting(kAnn), 1);
}

// Workers that compute, leave units out, are lost and leave, in a drawn order, before shards that
// are sets of units: in the end each shard holds every unit that was not left out, once.
class DrawnHistory {
 public:
  explicit DrawnHistory(uint32_t seed) : random_(seed) {}

  void Run() {
    for (int i = 0; i < 400; ++i) Act();
    while (Undone()) Act();
    for (const std::set<int64_t>& shard : shards_) {
      for (int64_t unit = 0; unit < kEnd; ++unit) {
        EXPECT_NE(shard.count(unit), left_out_.count(unit)) << unit;
      }
    }
    EXPECT_EQ(ledger_.counts().left_out, static_cast<int64_t>(left_out_.size()));
    EXPECT_EQ(ledger_.under_way(), 0);
  }

 private:
  static constexpr int kShards = 3, kWorkers = 3;
  static constexpr int64_t kEnd = 60;

  struct Worker {
    uint32_t incarnation = 1;
    std::vector<int64_t> waiting;                                     // not computed yet
    std::vector<int64_t> sent;                                        // by clock
    std::vector<int64_t> applied = std::vector<int64_t>(kShards, 0);  // of `sent`, by shard
  };

  int Draw(int below) { return static_cast<int>(random_() % static_cast<uint32_t>(below)); }

  bool Undone() const {
    return ledger_.next() < kEnd || ledger_.redo() > 0 || ledger_.under_way() > 0;
  }

  void Act() {
    const int rank = Draw(kWorkers);
    Worker& worker = workers_[rank];
    const WorkerId id{rank, worker.incarnation};
    const int what = Draw(100);
    if (what < 25) {
      if (const auto unit = ledger_.Give(id, kEnd)) {
        EXPECT_EQ(holders_.count(*unit), 0u) << *unit;
        holders_.insert(*unit);
        worker.waiting.push_back(*unit);
      }
    } else if (what < 50 && !worker.waiting.empty()) {
      const int64_t unit = worker.waiting.front();
      worker.waiting.erase(worker.waiting.begin());
      const bool left_out = Draw(10) == 0 && shards_[0].count(unit) == 0 &&
                            shards_[1].count(unit) == 0 && shards_[2].count(unit) == 0;
      const bool is_new = computed_.insert(unit).second;
      EXPECT_EQ(ledger_.OnComputed(id, unit, static_cast<int64_t>(worker.sent.size()), left_out),
                is_new);
      if (left_out) {
        left_out_.insert(unit);
      } else {
        worker.sent.push_back(unit);
      }
    } else if (what < 94) {
      const int shard = Draw(kShards);
      int64_t& applied = worker.applied[shard];
      if (applied < static_cast<int64_t>(worker.sent.size())) {
        shards_[shard].insert(worker.sent[applied++]);
      }
      ledger_.OnApplied(id, *std::min_element(worker.applied.begin(), worker.applied.end()));
    } else if (what < 97) {
      ledger_.OnLeaving(id);
      for (const int64_t unit : worker.waiting) holders_.erase(unit);
      worker.waiting.clear();
    } else {
      std::vector<UnitSet> whole;
      for (const std::set<int64_t>& shard : shards_) {
        whole.emplace_back();
        for (const int64_t unit : shard) whole.back().Insert(unit);
      }
      ledger_.OnLost(id, whole, {});
      for (const int64_t unit : worker.waiting) holders_.erase(unit);
      for (const int64_t unit : worker.sent) holders_.erase(unit);
      const uint32_t lost = worker.incarnation;
      worker = Worker();
      worker.incarnation = lost + 1;
    }
    const WorkCounts& counts = ledger_.counts();
    ASSERT_EQ(counts.given, counts.applied + counts.left_out + counts.partial + counts.lost +
                                ledger_.under_way());
  }

  std::mt19937 random_;
  WorkLedger ledger_;
  std::set<int64_t> shards_[kShards];
  Worker workers_[kWorkers];
  std::set<int64_t> holders_;  // units that a worker has, or has sent
  std::set<int64_t> computed_, left_out_;
};

TEST(WorkLedgerTest, EveryUnitComesToItsEndOnceWhateverHappens) {
  for (uint32_t seed = 0; seed < 300 && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    DrawnHistory(seed).Run();
  }
}

}  // namespace
}  // namespace rubato
