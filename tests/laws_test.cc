// The exact laws of synchronous, asynchronous and bounded training on real processes, whose
// computations take given times (they sleep). What happened is told by the workers: each writes
// which versions it pulled and how stale its contributions were. tools/simulator/laws_test.cc shows
// the laws that need more workers, random times or no noise.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cluster.h"

namespace rubato {
namespace {

// Of one worker and one block: what it pulled, in order. The first pull with clock c + 1 is the
// first one after its contribution number c, and tells that one's staleness.
struct Pulled {
  int64_t clock, version, staleness;
};
using Pulls = std::vector<Pulled>;

// Of one worker and one block: its contributions, by clock.
struct Contribution {
  int64_t read = 0;                                      // the version that it was computed at
  int64_t staleness = 0;                                 // when it was applied
  int64_t made() const { return read + staleness + 1; }  // the version that came of it
};
using Contributions = std::vector<Contribution>;

Contributions ContributionsOf(const Pulls& pulls) {
  Contributions contributions;
  for (size_t i = 1; i < pulls.size(); ++i) {
    if (pulls[i].clock == pulls[i - 1].clock) continue;  // asked again, in another view
    EXPECT_EQ(pulls[i].clock, pulls[i - 1].clock + 1);
    contributions.push_back({pulls[i - 1].version, pulls[i].staleness});
  }
  return contributions;
}

// Of all but those at the beginning, when not all have joined in, and at the end.
double MeanStaleness(const Contributions& contributions, size_t edge) {
  EXPECT_GT(contributions.size(), 2 * edge);
  double sum = 0, count = 0;
  for (size_t i = edge; i + edge < contributions.size(); ++i, ++count) {
    sum += static_cast<double>(contributions[i].staleness);
  }
  return sum / count;
}

class LawsTest : public ClusterTest {
 protected:
  // A whole run of `steps` global batches by `workers` workers, whose computations are of a
  // micro-batch each (on arrival) and take `milliseconds` (see worker/test_hooks.h).
  void Run(const std::string& consistency, int workers, const std::string& milliseconds,
           int steps) {
    workers_ = workers;
    Arguments arguments = {"/usr/bin/env",
                           "RUBATO_TEST_COMPUTE_MS=" + milliseconds,
                           "RUBATO_TEST_TRACE=" + folder(),
                           std::filesystem::absolute("tools/rubato").string(),
                           "train",
                           "job.yaml",
                           "--run-dir",
                           "run"};
    for (const std::string& override :
         {absl::StrCat("consistency=", consistency), absl::StrCat("cluster.workers=", workers),
          absl::StrCat("train.batch_size=", 8 * workers),
          absl::StrCat("train.micro_batches=", workers),
          absl::StrCat("train.until={steps: ", steps, "}"),
          // Few values and blocks, so that two cores do with what does not sleep.
          std::string("model={layers: [flatten, linear: {out_features: 10}]}")}) {
      arguments.insert(arguments.end(), {"--set", override});
    }
    const Process::Result result = Start(arguments).Wait();
    ASSERT_EQ(result.code, 0) << result.err;
    summary_ = Summary("run");
    blocks_ = static_cast<int64_t>(summary_["blocks"].size());
    ASSERT_GT(blocks_, 1);
    pulls_.assign(workers, std::vector<Pulls>(blocks_));
    for (int rank = 0; rank < workers; ++rank) {
      std::istringstream lines(ReadText(Path(absl::StrCat("worker-", rank))));
      Pulled pulled;
      for (int64_t block; lines >> pulled.clock >> block >> pulled.version >> pulled.staleness;) {
        pulls_[rank][block].push_back(pulled);
      }
      ASSERT_FALSE(pulls_[rank][0].empty()) << rank;
    }
  }

  Contributions Of(int worker, int64_t block) const {
    return ContributionsOf(pulls_[worker][block]);
  }

  // The conservation law of each block, between integers: what the shard has counted as staleness,
  // the updates that workers saw between an own push and the next pull, and those since their last
  // pull, make up (N - 1) for each update. Also that each version was made by one contribution.
  void ExpectConservation() const {
    for (int64_t block = 0; block < blocks_; ++block) {
      const nlohmann::json& ledger = summary_["blocks"][block];
      const int64_t updates = ledger["updates"];
      int64_t pulled = 0, lags = 0, stalest = 0;
      std::vector<int64_t> made;
      for (int worker = 0; worker < workers_; ++worker) {
        const Contributions contributions = Of(worker, block);
        for (const Contribution& contribution : contributions) {
          made.push_back(contribution.made());
          stalest = std::max(stalest, contribution.staleness);
        }
        int64_t seen = 0;  // the version after the last own push or pull
        const Pulls& pulls = pulls_[worker][block];
        for (size_t i = 0; i < pulls.size(); ++i) {
          if (i > 0 && pulls[i].clock != pulls[i - 1].clock) {
            seen = contributions[pulls[i - 1].clock].made();
          }
          EXPECT_GE(pulls[i].version, seen) << "worker " << worker << " lacks its own update";
          pulled += pulls[i].version - seen;
          seen = pulls[i].version;
        }
        lags += updates - seen;
      }
      const int64_t staleness = ledger["staleness_sum"];
      EXPECT_EQ(staleness + pulled + lags, updates * (workers_ - 1)) << "block " << block;
      EXPECT_EQ(ledger["staleness_max"], stalest);
      std::sort(made.begin(), made.end());
      std::vector<int64_t> versions(updates);
      for (int64_t i = 0; i < updates; ++i) versions[i] = i + 1;
      EXPECT_EQ(made, versions) << "block " << block;
    }
  }

  int workers_ = 0;
  int64_t blocks_ = 0;
  nlohmann::json summary_;
  std::vector<std::vector<Pulls>> pulls_;  // by worker and block
};

// By the conservation law the mean is N - 1 less what a worker sees between its push and its next
// pull: it cannot be above, but for the edges, and is below by the share that this takes of a
// computation's time.
TEST_F(LawsTest, EqualWorkersOnArrivalAreStaleByAllTheOthers) {
  for (const int workers : {2, 8}) {
    std::filesystem::remove_all(Path("run"));
    Run("async", workers, "30", 60);
    ExpectConservation();
    double mean = 0;
    for (int worker = 0; worker < workers; ++worker) {
      mean += MeanStaleness(Of(worker, 0), 3) / workers;
    }
    std::cout << workers << " workers: mean staleness " << mean << std::endl;
    EXPECT_NEAR(mean, workers - 1, 0.15 * (workers - 1));
  }
}

// One that is k times slow is stale by (N - 1) k, the others by N - 2 + 1/k.
TEST_F(LawsTest, OneSlowWorkerOnArrivalIsStaleByWhatTheOthersDoMeanwhile) {
  constexpr int kWorkers = 8;
  constexpr double k = 4;
  Run("async", kWorkers, "30,0:120", 100);
  ExpectConservation();
  double fast = 0;
  for (int worker = 1; worker < kWorkers; ++worker) {
    fast += MeanStaleness(Of(worker, 0), 5) / (kWorkers - 1);
  }
  const double slow = MeanStaleness(Of(0, 0), 2);
  std::cout << "mean staleness: slow " << slow << ", fast " << fast << std::endl;
  EXPECT_NEAR(slow, (kWorkers - 1) * k, 0.15 * (kWorkers - 1) * k);
  EXPECT_NEAR(fast, kWorkers - 2 + 1 / k, 0.5);
}

// A pull at clock c holds all contributions below clock c - s; those who are fast make use of it,
// and go no faster than the slow one.
TEST_F(LawsTest, NobodyComputesMoreThanTheBoundAheadOfTheSlowest) {
  constexpr int kWorkers = 4;
  for (const int64_t s : {0, 2}) {
    std::filesystem::remove_all(Path("run"));
    Run(absl::StrCat("{mode: bounded, staleness: ", s, "}"), kWorkers, "10,0:60", 40);
    ExpectConservation();
    for (int64_t block = 0; block < blocks_; ++block) {
      int64_t at_the_bound = 0, pulls = 0;
      for (int worker = 0; worker < kWorkers; ++worker) {
        for (int other = 0; other < kWorkers; ++other) {
          const Contributions others = Of(other, block);
          const int64_t own = static_cast<int64_t>(Of(worker, block).size());
          for (const Pulled& pull : pulls_[worker][block]) {
            if (pull.clock == own) continue;  // it computed nothing more
            // What is to come of one who was not given more in the end holds up nobody.
            const int64_t needed = std::min(pull.clock - s, static_cast<int64_t>(others.size()));
            int64_t held = 0;
            while (held < static_cast<int64_t>(others.size()) &&
                   others[held].made() <= pull.version) {
              ++held;
            }
            EXPECT_GE(held, needed) << "worker " << worker << " at clock " << pull.clock
                                    << " lacks what worker " << other << " did";
            if (worker == 0 || other != 0) continue;
            ++pulls;
            if (held == pull.clock - s) ++at_the_bound;
          }
        }
      }
      // The fast ones have five times as long as they need to come to the bound.
      EXPECT_GT(at_the_bound, pulls * 3 / 4);
    }
    // So each of them makes one update in each of the slow one's computations.
    const double slow = MeanStaleness(Of(0, 0), 3);
    std::cout << "bound " << s << ": mean staleness of the slow one " << slow << std::endl;
    EXPECT_NEAR(slow, kWorkers - 1, 0.5);
  }
}

// All pull version c at clock c, and a step takes as long as the slowest: not less, and far from
// what the others take in turn.
TEST_F(LawsTest, ABarrierIsAsSlowAsItsSlowestWorker) {
  constexpr int kSteps = 20;
  Run("sync", 4, "0:50,1:100,2:150,3:200", kSteps);
  for (const std::vector<Pulls>& of_worker : pulls_) {
    for (const Pulls& pulls : of_worker) {
      for (const Pulled& pull : pulls) EXPECT_EQ(pull.version, pull.clock);
    }
  }
  for (const nlohmann::json& block : summary_["blocks"]) EXPECT_EQ(block["updates"], kSteps);
  const double seconds = summary_["seconds"];
  std::cout << "a step: " << seconds / kSteps << " s" << std::endl;
  EXPECT_GE(seconds, kSteps * 0.2 * 0.999);
  EXPECT_LT(seconds, kSteps * (0.05 + 0.1 + 0.15 + 0.2));
}

}  // namespace
}  // namespace rubato
