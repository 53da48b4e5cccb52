// Runs the drawn cases of property_test.cc on a core that has a bug on purpose (mutants.bzl), until
// one violates the invariant that names the bug. What fails otherwise does not count, neither does
// a core that aborts or runs for ever: each case runs in a process of its own.
//   RUBATO_CAUGHT_BY=reference      the invariant
//   RUBATO_INVARIANTS=account|...   all that there are: each violation begins with one of them
//   RUBATO_SEEDS=300                goes through so many, and tells by what each of them fails
//   first
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/simulator/scenario.h"
#include "tools/simulator/scenario_run.h"

namespace rubato {
namespace {

constexpr int64_t kSeeds = 10000;
constexpr rlim_t kMostSeconds = 5;  // of processor time; the longest case takes less than one

constexpr char kAborts[] = "aborts";

// In a process of its own: tells what is wrong through `out`.
[[noreturn]] void RunTo(int out, const Scenario& scenario) {
  const rlimit time{kMostSeconds, kMostSeconds};
  const rlimit no_core{0, 0};
  // What a core says before it aborts is not wanted.
  const int null = open("/dev/null", O_WRONLY);
  if (setrlimit(RLIMIT_CPU, &time) != 0 || setrlimit(RLIMIT_CORE, &no_core) != 0 ||
      dup2(null, STDERR_FILENO) < 0) {
    std::abort();
  }
  Coverage unused;
  const absl::Status status = RunScenario(scenario, &unused);
  const absl::string_view text = status.message();
  _exit(write(out, text.data(), text.size()) == static_cast<ssize_t>(text.size()) ? 0 : 1);
}

// What is wrong; empty: nothing.
std::string FailureOf(const Scenario& scenario) {
  int ends[2];
  if (pipe(ends) != 0) return "there is no pipe";
  const pid_t child = fork();
  if (child == 0) RunTo(ends[1], scenario);
  close(ends[1]);
  std::string text;
  char part[4096];
  for (ssize_t size = 0; (size = read(ends[0], part, sizeof(part))) > 0;) text.append(part, size);
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  return status == 0 ? text : kAborts;
}

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
    const std::string failure = FailureOf(Scenario::Draw(static_cast<uint64_t>(seed)));
    if (failure.empty()) continue;
    const std::string name = failure.substr(0, failure.find(": "));
    is_caught = is_caught || name == caught_by;
    if (++failed[name] > 1) continue;
    std::cout << "seed " << seed << ": " << failure << "\n";
    if (name == kAborts) continue;
    EXPECT_THAT(invariants, ::testing::Contains(name)) << "expected one of docs/simulator.md";
  }
  for (const auto& [name, count] : failed) std::cout << name << " in " << count << " seeds\n";
  EXPECT_TRUE(is_caught) << "no seed violates: " << caught_by;
}

}  // namespace
}  // namespace rubato
