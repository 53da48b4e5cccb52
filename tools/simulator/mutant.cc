// Runs the drawn cases of property_test.cc on a core that has a bug on purpose (mutants.bzl), until
// one violates the invariant that names the bug. What fails otherwise does not count, neither does
// a core that aborts or runs for ever (apart.h).
//   RUBATO_CAUGHT_BY=reference      the invariant
//   RUBATO_INVARIANTS=account|...   all that there are: each violation begins with one of them
//   RUBATO_SEEDS=300                goes through so many, and tells by what each of them fails
//   first
#include <cstdlib>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/simulator/apart.h"
#include "tools/simulator/scenario.h"
#include "tools/simulator/scenario_run.h"

namespace rubato {
namespace {

constexpr int64_t kSeeds = 10000;

TEST(MutantTest, TheInvariantThatNamesItCatchesIt) {
  const char* const caught_by = std::getenv("RUBATO_CAUGHT_BY");
  const char* const all = std::getenv("RUBATO_INVARIANTS");
  ASSERT_TRUE(caught_by != nullptr && all != nullptr) << "expected to be run by Bazel";
  const std::vector<std::string> invariants = absl::StrSplit(all, '|');
  int64_t wanted = 0;
  const char* const seeds = std::getenv("RUBATO_SEEDS");
  const bool goes_on = seeds != nullptr && absl::SimpleAtoi(seeds, &wanted);
  std::map<std::string, int> failed;  // by invariant
  bool is_caught = false;
  for (int64_t seed = 0; goes_on ? seed < wanted : seed < kSeeds && !is_caught; ++seed) {
    const absl::Status status = RunApart([seed] {
      Coverage unused;
      return RunScenario(Scenario::Draw(static_cast<uint64_t>(seed)), &unused);
    });
    if (status.ok()) continue;
    const std::string name(status.message().substr(0, status.message().find(": ")));
    is_caught = is_caught || name == caught_by;
    if (++failed[name] > 1) continue;
    std::cout << "seed " << seed << ": " << status.message() << "\n";
    if (absl::IsAborted(status)) continue;
    EXPECT_THAT(invariants, ::testing::Contains(name)) << "expected one of docs/simulator.md";
  }
  for (const auto& [name, count] : failed) std::cout << name << " in " << count << " seeds\n";
  EXPECT_TRUE(is_caught) << "no seed violates: " << caught_by;
}

}  // namespace
}  // namespace rubato
