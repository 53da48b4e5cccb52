#include "tests/drawn_clusters.h"

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "common/base/status.h"
#include "gtest/gtest.h"
#include "tools/simulator/apart.h"
#include "tools/simulator/scenario.h"

namespace rubato {

absl::StatusOr<SimulationSetting> DrawCluster(uint64_t seed, const proto::Mode& mode,
                                              PolicyFactory policies, int64_t blocks) {
  Scenario scenario = Scenario::Draw(seed);
  scenario.switches.clear();
  scenario.checkpoints.clear();
  scenario.stops.clear();
  scenario.script_changes = false;
  scenario.begins_from_file = false;
  // A server's death ends the job in any mode.
  const auto is_fatal = [](const Fault& fault) { return !IsSurvivable(fault.kind); };
  scenario.faults.erase(std::remove_if(scenario.faults.begin(), scenario.faults.end(), is_fatal),
                        scenario.faults.end());
  SmallJob& job = scenario.job;
  job.mode = mode;
  job.schedule.clear();
  job.leaves_out = false;
  job.is_script = false;
  job.epochs = 1;
  job.learning_rate_parity = true;
  job.checkpoint_every = {};
  job.top_k = false;
  job.seconds = 0;
  job.target = 0;
  job.diverges_in = 0;
  job.servers = kDrawnShards;
  job.blocks = blocks;
  RUBATO_ASSIGN_OR_RETURN(SimulationSetting setting, SettingOf(scenario));
  setting.policies = std::move(policies);
  if (std::getenv("RUBATO_SEED") != nullptr) {
    std::cout << scenario.ToString() << "\n";
    setting.callbacks.on_text = [](bool, const std::string& text, absl::Time now) {
      std::cout << absl::FormatDuration(now - SimStart()) << " " << text << "\n";
    };
  }
  return setting;
}

bool ForEachSeed(int64_t seeds, absl::FunctionRef<absl::Status(uint64_t seed)> run) {
  const char* const only = std::getenv("RUBATO_SEED");
  const char* const caught_by = std::getenv("RUBATO_CAUGHT_BY");
  uint64_t first = 0;
  const bool is_one = only != nullptr && absl::SimpleAtoi(only, &first);
  int failed = 0;
  for (uint64_t seed = first; seed < (is_one ? first + 1 : static_cast<uint64_t>(seeds)); ++seed) {
    const absl::Status status =
        caught_by == nullptr ? run(seed) : RunApart([&] { return run(seed); });
    if (status.ok()) continue;
    if (caught_by != nullptr) {
      if (!absl::StrContains(status.message(), caught_by)) continue;
      std::cout << "caught by seed " << seed << ": " << status.message() << "\n";
      return false;
    }
    ADD_FAILURE() << status << "\nreplay with RUBATO_SEED=" << seed;
    if (++failed == 3) return false;
  }
  EXPECT_EQ(caught_by, nullptr) << "no seed fails so";
  return !is_one;
}

}  // namespace rubato
