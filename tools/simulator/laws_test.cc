// The exact laws of synchronous and asynchronous training, as closed formulas. The cores must show
// them on a network that takes no time; the unit of time is the mean of a computation.
#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "common/base/status_matchers.h"
#include "common/space/modes.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/simulator/conservation.h"
#include "tools/simulator/simulation.h"
#include "tools/simulator/small_job.h"

namespace rubato {
namespace {

using ::testing::Each;
using ::testing::Ge;
using ::testing::IsEmpty;
using ::testing::Le;

constexpr uint64_t kSeed = 20261121;

// What happened to the blocks.
class Record : public Observer {
 public:
  Record(int workers, int64_t blocks) : staleness(workers), conservation(blocks) {
    for (Conservation& law : conservation) {
      for (int worker = 0; worker < workers; ++worker) law.OnJoin({worker, 1}, 0);
    }
  }

  void OnApplied(int64_t block, const Frame& contribution, const UpdateTerms&, int64_t version,
                 uint64_t, uint64_t) override {
    const int worker = static_cast<int>(contribution.worker);
    conservation[block].OnApplied({worker, 1}, version);
    if (block != 0) return;
    read.push_back(static_cast<int64_t>(contribution.version));
    staleness[worker].push_back(version - 1 - static_cast<int64_t>(contribution.version));
  }
  void OnTaken(int64_t block, const WorkerId& worker, uint32_t, int64_t version) override {
    conservation[block].OnPulled(worker, version);
  }

  std::vector<int64_t> All() const {
    std::vector<int64_t> all;
    for (const auto& own : staleness) all.insert(all.end(), own.begin(), own.end());
    return all;
  }

  std::vector<std::vector<int64_t>> staleness;  // of block 0's updates, by worker
  std::vector<int64_t> read;               // by update of block 0: the version it was computed at
  std::vector<Conservation> conservation;  // by block
};

double Mean(const std::vector<int64_t>& values) {
  double sum = 0;
  for (int64_t value : values) sum += static_cast<double>(value);
  return sum / static_cast<double>(values.size());
}

double Variance(const std::vector<int64_t>& values) {
  const double mean = Mean(values);
  double sum = 0;
  for (int64_t value : values) sum += (value - mean) * (value - mean);
  return sum / static_cast<double>(values.size());
}

// All but the first `n` of each worker.
std::vector<int64_t> After(int64_t n, const std::vector<std::vector<int64_t>>& by_worker) {
  std::vector<int64_t> rest;
  for (const auto& own : by_worker) rest.insert(rest.end(), own.begin() + n, own.end());
  return rest;
}

class LawsTest : public ::testing::Test {
 protected:
  // `units` computations of one micro-batch each by `workers` workers: steps of all of them in
  // sync, contributions on arrival.
  void Run(const proto::Mode& mode, int workers, int64_t units, const std::string& speeds,
           SimTime jitter = 0) {
    SmallJob small;
    small.mode = mode;
    small.workers = workers;
    small.micro_batches = workers;
    small.steps = units / workers;
    SimulationSetting setting = MakeSetting(small);
    setting.seed = seed_;
    auto parsed = Speeds::Parse(speeds, seed_);
    RUBATO_ASSERT_OK(parsed);
    setting.speeds = *parsed;
    setting.jitter = jitter;
    record_.emplace(workers, small.blocks);
    setting.observer = &*record_;
    auto simulation = Simulation::Create(std::move(setting));
    RUBATO_ASSERT_OK(simulation);
    simulation_ = *std::move(simulation);
    RUBATO_ASSERT_OK(simulation_->Run());
  }

  double Seconds() const { return simulation_->coordinator().summary().seconds; }

  // w by version, from 1 on, when the gradient is that of (lambda / 2) w^2: each update moves w by
  // `rate`, which is eta lambda, times the w that its worker had read.
  std::vector<double> Quadratic(double rate) const {
    std::vector<double> w = {1};
    for (const int64_t version : record_->read) w.push_back(w.back() - rate * w[version]);
    return w;
  }

  uint64_t seed_ = kSeed;
  std::optional<Record> record_;
  std::unique_ptr<Simulation> simulation_;
};

TEST_F(LawsTest, EqualWorkersOnArrivalAreStaleByAllTheOthers) {
  for (const int workers : {1, 2, 8}) {
    Run(AsyncMode(), workers, 100 * workers, "fixed");
    EXPECT_THAT(After(1, record_->staleness), Each(workers - 1));
    EXPECT_NEAR(Seconds(), 100, 1e-6);
    // The first contributions are all of version 0; each block counts its own updates.
    const int64_t blocks = static_cast<int64_t>(record_->conservation.size());
    std::vector<int64_t> counts(workers, blocks);
    counts.back() = blocks * (99 * workers + 1);
    EXPECT_EQ(simulation_->coordinator().summary().staleness_counts, counts);
  }
}

// What is staler than is counted one by one is counted together.
TEST_F(LawsTest, EveryUpdateIsCountedByItsStaleness) {
  constexpr int kWorkers = 70;
  Run(AsyncMode(), kWorkers, 10 * kWorkers, "fixed");
  const int64_t blocks = static_cast<int64_t>(record_->conservation.size());
  std::vector<int64_t> counts(kMostStaleness + 1, blocks);
  counts.back() = blocks * (10 * kWorkers - kMostStaleness);
  EXPECT_EQ(simulation_->coordinator().summary().staleness_counts, counts);
  Run(SyncMode(), 8, 80, "fixed");
  EXPECT_THAT(simulation_->coordinator().summary().staleness_counts, IsEmpty());
}

TEST_F(LawsTest, AOnePercentJitterOfEightWorkersKeepsStalenessWithinEleven) {
  Run(AsyncMode(), 8, 8000, "jitter:width=0.01");
  EXPECT_THAT(record_->All(), Each(Ge(0)));
  EXPECT_THAT(record_->All(), Each(Le(11)));
  EXPECT_NEAR(Mean(After(1, record_->staleness)), 7, 0.02);
}

// P(staleness = j) = (1/N) (1 - 1/N)^j: mean N - 1, variance N (N - 1).
TEST_F(LawsTest, ExponentialWorkersOnArrivalAreGeometricallyStale) {
  constexpr int kWorkers = 8;
  constexpr int64_t kUnits = 40000;
  Run(AsyncMode(), kWorkers, kUnits, "exponential");
  const std::vector<int64_t> staleness = record_->All();
  ASSERT_EQ(staleness.size(), kUnits);
  // Five standard errors of independent draws.
  EXPECT_NEAR(Mean(staleness), kWorkers - 1, 5 * std::sqrt(56.0 / kUnits));
  EXPECT_NEAR(Variance(staleness), kWorkers * (kWorkers - 1), 3);
  std::map<int64_t, int64_t> counts;
  for (int64_t value : staleness) ++counts[value];
  double expected = 0, found = 0, distance = 0;
  for (int64_t j = 0; j < 60; ++j) {
    expected += std::pow(1 - 1.0 / kWorkers, j) / kWorkers;
    found += static_cast<double>(counts[j]) / kUnits;
    distance = std::max(distance, std::abs(expected - found));
  }
  // Kolmogorov and Smirnov's bound at a risk of 1e-4.
  EXPECT_LT(distance, 2.22 / std::sqrt(kUnits));
  // Each worker makes an update in a time of 1.
  EXPECT_NEAR(kUnits / Seconds(), kWorkers, 0.1);
  // Of each block, so those of three blocks say no more than those of one.
  const std::vector<int64_t>& told = simulation_->coordinator().summary().staleness_counts;
  const double all =
      static_cast<double>(kUnits) * static_cast<double>(record_->conservation.size());
  for (const int j : {0, 1, 5, 20}) {
    const double share = std::pow(1 - 1.0 / kWorkers, j) / kWorkers;
    EXPECT_NEAR(static_cast<double>(told[j]) / all, share, 5 * std::sqrt(share / kUnits)) << j;
  }
}

// One k times slow: it is stale by (N - 1) k, the others by N - 2 + 1/k; the rate is N - 1 + 1/k.
TEST_F(LawsTest, OneSlowWorkerOnArrivalIsStaleByWhatTheOthersDoMeanwhile) {
  constexpr int kWorkers = 8;
  constexpr double k = 4;
  constexpr int64_t kUnits = 16000;
  Run(AsyncMode(), kWorkers, kUnits, "straggler:factor=4,worker=3");
  std::vector<std::vector<int64_t>> fast = record_->staleness;
  // At the end it has one more to do, given to it before, and the others nothing.
  const std::vector<int64_t> slow(fast[3].begin() + 1, fast[3].end() - 2);
  fast.erase(fast.begin() + 3);
  EXPECT_THAT(slow, Each(static_cast<int64_t>((kWorkers - 1) * k)));
  EXPECT_NEAR(Mean(After(5, fast)), kWorkers - 2 + 1 / k, 0.01);
  EXPECT_NEAR(kUnits / Seconds(), kWorkers - 1 + 1 / k, 0.02);
}

// A barrier waits for the slowest of N exponential times: the N-th harmonic number.
TEST_F(LawsTest, ABarrierOfExponentialWorkersTakesTheHarmonicNumber) {
  for (const int workers : {2, 8}) {
    double harmonic = 0, variance = 0;
    for (int i = 1; i <= workers; ++i) {
      harmonic += 1.0 / i;
      variance += 1.0 / (i * i);
    }
    constexpr int64_t kSteps = 5000;
    Run(SyncMode(), workers, kSteps * workers, "exponential");
    EXPECT_NEAR(Seconds() / kSteps, harmonic, 4 * std::sqrt(variance / kSteps));
  }
}

// Slow by 10 with probability 0.05: some of 8 is, in 1 - 0.95^8 of the steps.
TEST_F(LawsTest, ABarrierWaitsForTransientStragglers) {
  constexpr int64_t kSteps = 5000;
  Run(SyncMode(), 8, kSteps * 8, "transient:p=0.05,factor=10");
  const double p = 1 - std::pow(0.95, 8);
  EXPECT_NEAR(Seconds() / kSteps, 1 + 9 * p, 4 * 9 * std::sqrt(p * (1 - p) / kSteps));
}

TEST_F(LawsTest, ABarrierIsAsSlowAsItsSlowestWorker) {
  Run(SyncMode(), 8, 800, "straggler:factor=4");
  EXPECT_NEAR(Seconds() / 100, 4, 1e-6);
}

// Two exponential workers are a random walk of the difference of their clocks between -(s + 1) and
// s + 1, at whose ends one of them waits: the share of the time that they compute.
TEST_F(LawsTest, TwoBoundedWorkersComputeInAllButOneOfTheStatesOfTheirGap) {
  constexpr int64_t kUnits = 40000;
  for (const int64_t staleness : {0, 1, 3}) {
    Run(BoundedMode(staleness), 2, kUnits, "exponential");
    const double s = static_cast<double>(staleness);
    EXPECT_NEAR(kUnits / (2 * Seconds()), (2 * s + 2) / (2 * s + 3), 0.012) << staleness;
  }
}

// A bound helps against slow moments, not against a slow worker: the rate is that of the barrier.
TEST_F(LawsTest, ABoundDoesNotHelpAgainstAWorkerThatIsAlwaysSlow) {
  constexpr int64_t kUnits = 8000;
  for (const int64_t staleness : {0, 3}) {
    Run(BoundedMode(staleness), 8, kUnits, "straggler:factor=4");
    // But for the end, when the others may take over what the slow one would have done.
    EXPECT_NEAR(kUnits / Seconds(), 8 / 4.0, 0.02) << staleness;
  }
}

TEST_F(LawsTest, NoUpdateIsLostOrCountedTwiceInTheConservationLaw) {
  for (const char* speeds : {"fixed", "exponential", "lognormal:sigma=1+transient:p=0.1,factor=20",
                             "jitter+straggler:factor=7"}) {
    for (const SimTime jitter : {SimTime{0}, 200 * kMillisecond}) {
      for (const int workers : {1, 3, 8}) {
        Run(AsyncMode(), workers, 300 * workers, speeds, jitter);
        for (int64_t block = 0; block < 4; ++block) {
          const BlockLedger& ledger = simulation_->ledger(block);
          EXPECT_EQ(ledger.version, 300 * workers);
          EXPECT_TRUE(record_->conservation[block].Holds(ledger.staleness_sum))
              << speeds << ", block " << block << ": "
              << record_->conservation[block].ToString(ledger.staleness_sum);
        }
      }
    }
  }
}

// At a fixed delay tau a quadratic is stable up to eta lambda = 2 sin(pi / (4 tau + 2)): 2, 1,
// .445, .209, .101 at tau = 0, 1, 3, 7, 15.
TEST_F(LawsTest, AQuadraticAtAFixedDelayIsStableUpToItsEdge) {
  for (const int workers : {1, 2, 4, 8, 16}) {
    constexpr size_t kUpdates = 8000;
    Run(AsyncMode(), workers, kUpdates, "fixed");
    const double edge = 2 * std::sin(M_PI / (4 * (workers - 1) + 2));
    for (const double part : {0.95, 1.05}) {
      const std::vector<double> w = Quadratic(part * edge);
      ASSERT_EQ(w.size(), kUpdates + 1);
      // What it is at most in the hundred updates up to there: more than a period.
      const auto amplitude = [&w](size_t end) {
        double most = 0;
        for (size_t i = end - 100; i < end; ++i) most = std::max(most, std::abs(w[i]));
        return most;
      };
      const double grows = amplitude(4000) / amplitude(2000);
      if (part < 1) {
        EXPECT_LT(grows, 0.5) << workers << " workers";
      } else {
        EXPECT_GT(grows, 2) << workers << " workers";
      }
    }
  }
}

// Of workers that take exponential times the mean goes as a heavy ball with momentum 1 - 1/N and
// learning rate eta / N: all are equally likely to be next, whatever has happened. Mitliagkas et
// al. 2016.
TEST_F(LawsTest, AQuadraticOfExponentialWorkersIsAHeavyBallInTheMean) {
  constexpr int kWorkers = 4;
  constexpr int kUpdates = 40;
  constexpr int kRuns = 1000;
  constexpr double kRate = 0.5;
  std::vector<double> sum(kUpdates + 1), squares(kUpdates + 1);
  for (int run = 0; run < kRuns; ++run) {
    seed_ = kSeed + run;
    Run(AsyncMode(), kWorkers, kUpdates, "exponential");
    const std::vector<double> w = Quadratic(kRate);
    ASSERT_EQ(w.size(), sum.size());
    for (size_t i = 0; i < w.size(); ++i) {
      sum[i] += w[i];
      squares[i] += w[i] * w[i];
    }
  }
  constexpr double kMomentum = 1 - 1.0 / kWorkers;
  double ball = 1, step = 0;
  for (int i = 0; i <= kUpdates; ++i) {
    const double mean = sum[i] / kRuns;
    const double deviation = std::sqrt(std::max(squares[i] / kRuns - mean * mean, 0.0) / kRuns);
    EXPECT_NEAR(mean, ball, 4 * deviation + 1e-12) << "after " << i << " updates";
    // Before the first update all had read the same w: the ball has come down to it.
    step = i == 0 ? -kRate * ball : kMomentum * step - kRate / kWorkers * ball;
    ball += step;
  }
}

}  // namespace
}  // namespace rubato
