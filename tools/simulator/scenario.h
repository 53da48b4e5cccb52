// One drawn case of the property tests: a cluster, its speeds and network, and what goes wrong; run
// on symbols to its end and judged by invariants. All of it is a function of the seed.
#ifndef RUBATO_TOOLS_SIMULATOR_SCENARIO_H_
#define RUBATO_TOOLS_SIMULATOR_SCENARIO_H_

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/simulator/coverage.h"
#include "tools/simulator/fault.h"
#include "tools/simulator/small_job.h"

namespace rubato {

struct Scenario {
  uint64_t seed = 0;
  SmallJob job;
  std::string speeds;
  SimTime latency = 0;
  double bytes_per_second = 0;  // 0: unlimited
  SimTime jitter = 0;
  double change_bytes_per_second = 0;  // 0: changes take no time
  std::vector<Fault> faults;
  std::vector<SimulationSetting::Switch> switches;  // by hand
  std::vector<int64_t> checkpoints;                 // by hand, at these messages
  std::vector<SimulationSetting::Stop> stops;
  SimTime replaced_after = kSecond;  // a worker, where fewer than the least are left
  SimTime checkpoint_time = 0;
  SimTime test_time = 0;

  static Scenario Draw(uint64_t seed);
  std::string ToString() const;
};

// What runs it, on symbols, with nobody who judges.
absl::StatusOr<SimulationSetting> SettingOf(const Scenario& scenario);
// Internal, saying which invariant does not hold, or what the simulation failed with.
// The coordinator's views and lines for people go to `log`, if there is one.
absl::Status RunScenario(const Scenario& scenario, Coverage* coverage, std::ostream* log = nullptr);

// `scenario`, which fails, without what it fails without as well: faults, switches, checkpoints,
// stops, the schedule, clipping, leaving out.
Scenario Shrink(Scenario scenario);

}  // namespace rubato

#endif  // RUBATO_TOOLS_SIMULATOR_SCENARIO_H_
