// Random clusters, speeds and faults, judged by invariants. The environment may say which:
//   RUBATO_SEED=123        this one alone, printed
//   RUBATO_SHRINK=1        of that one, if it fails, the shortest harm with which it fails still
//   RUBATO_SEEDS=10000     from 0 on, until so many had a switch and two faults
//   RUBATO_FIRST=50000     from there on, in place of 0
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/synchronization/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/simulator/coverage.h"
#include "tools/simulator/scenario.h"
#include "tools/simulator/scenario_run.h"
#include "tools/simulator/shrink.h"

namespace rubato {
namespace {

constexpr int64_t kSeeds = 10000;
constexpr int kThreads = 2;
// Some faults find no message that they fit, and some switches come when all is over: of such runs
// all is checked, but they do not count.
constexpr int64_t kMinSwitches = 1;
constexpr int64_t kMinFaults = 2;

int64_t FromEnvironment(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  int64_t value = 0;
  return text != nullptr && absl::SimpleAtoi(text, &value) ? value : otherwise;
}

// What is said of a seed that fails.
std::string Explain(const Scenario& scenario, const absl::Status& status) {
  return absl::StrFormat(
      "%s\n  %s\nreplay with RUBATO_SEED=%d, with RUBATO_SHRINK=1 beside it only what it takes",
      status.message(), scenario.ToString(), scenario.seed);
}

// A core that breaks a rule of its own aborts: the seed is told all the same.
thread_local uint64_t running = 0;

void TellSeed(int) {
  char text[64];
  const int size = std::snprintf(text, sizeof(text), "aborted; replay with RUBATO_SEED=%llu\n",
                                 static_cast<unsigned long long>(running));
  if (write(2, text, size) != size) _exit(1);
}

// Each has shown a fault, for as long as cases are drawn as they were then.
TEST(PropertyTest, SeedsThatHaveFailedOnce) {
  for (const uint64_t seed :
       {32456,  35670,  36659,  38385,  39736,  52342,  57265,   60573,  105578, 116322,
        125338, 130881, 185217, 197459, 225303, 372161, 382129,  465858, 493947, 615240,
        627003, 932,    812549, 821895, 919470, 1139,   3118883, 3453600}) {
    const Scenario scenario = Scenario::Draw(seed);
    Coverage coverage;
    const absl::Status status = RunScenario(scenario, &coverage);
    EXPECT_TRUE(status.ok()) << Explain(scenario, status);
  }
}

TEST(PropertyTest, InvariantsHoldUnderRandomClustersSpeedsAndFaults) {
  std::signal(SIGABRT, TellSeed);
  const int64_t only = FromEnvironment("RUBATO_SEED", -1);
  if (only >= 0) {
    Scenario scenario = Scenario::Draw(static_cast<uint64_t>(only));
    running = scenario.seed;
    if (FromEnvironment("RUBATO_SHRINK", 0) != 0 && Fails(scenario)) scenario = Shrink(scenario);
    std::cout << scenario.ToString() << std::endl;
    Coverage coverage;
    const absl::Status status = RunScenario(scenario, &coverage, &std::cout);
    EXPECT_TRUE(status.ok()) << Explain(scenario, status);
    return;
  }
  const int64_t seeds = FromEnvironment("RUBATO_SEEDS", kSeeds);
  const int64_t first = FromEnvironment("RUBATO_FIRST", 0);
  std::atomic<int64_t> next = first, counted = 0;
  absl::Mutex mutex;
  Coverage all;
  std::atomic<int> failed = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      Coverage own;
      for (int64_t seed = next++; counted < seeds; seed = next++) {
        const Scenario scenario = Scenario::Draw(static_cast<uint64_t>(seed));
        running = scenario.seed;
        Coverage one;
        const absl::Status status = RunScenario(scenario, &one);
        if (status.ok()) {
          own.killed += one.killed;
          own.in_vain += one.in_vain;
          own.diverged += one.diverged;
          if (one.killed > 0 || one.switches < kMinSwitches || one.faults < kMinFaults) continue;
          ++counted;
          own.Add(one);
          continue;
        }
        ++counted;
        absl::MutexLock lock(&mutex);
        ++failed;
        if (failed <= 3) {
          ADD_FAILURE() << Explain(scenario, status);
        } else {
          std::cout << "seed " << seed << ": " << status.message() << "\n";
        }
      }
      absl::MutexLock lock(&mutex);
      all.Add(own);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failed, 0) << "of " << seeds << " seeds";
  std::cout << all.ToString() << next - first << " seeds were drawn\n";
  if (seeds >= kSeeds) {
    EXPECT_THAT(all.Empty(), ::testing::IsEmpty());
  }
}

}  // namespace
}  // namespace rubato
