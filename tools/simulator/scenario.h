// One randomly drawn case of the property tests: a cluster, its speeds and network, and its faults.
// All of it is a function of the seed.
#ifndef RUBATO_TOOLS_SIMULATOR_SCENARIO_H_
#define RUBATO_TOOLS_SIMULATOR_SCENARIO_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/simulator/coverage.h"
#include "tools/simulator/fault.h"
#include "tools/simulator/small_job.h"

namespace rubato {

// Of all drawn jobs.
constexpr SimTime kDrawnLease = 2 * kSecond;
constexpr SimTime kDrawnStallTimeout = 60 * kSecond;
constexpr SimTime kDrawnStartTimeout = 60 * kSecond;
constexpr int kManyRestarts = 8;  // of most whose servers come back: more than they are lost
constexpr SimTime kDrawnMicroBatchTime = 100 * kMillisecond;

struct Scenario {
  // What a worker's time for a micro-batch is multiplied by: `text` as of --speeds.
  struct SpeedsDrawn {
    const char* text;
    double mean;  // of the slowest worker
    double most;  // that is hardly ever exceeded
  };

  uint64_t seed = 0;
  SmallJob job;
  SpeedsDrawn speeds{"fixed", 1, 1};
  SimTime latency = 0;
  double bytes_per_second = 0;  // 0: unlimited
  SimTime jitter = 0;
  double change_bytes_per_second = 0;  // 0: changes take no time
  std::optional<Misfit> first;         // comes first of all, and goes
  std::vector<Fault> faults;
  std::vector<SimulationSetting::Switch> switches;  // by hand
  std::vector<int64_t> checkpoints;                 // by hand, at these messages
  std::vector<SimulationSetting::Stop> stops;
  SimTime replaced_after = kSecond;  // a worker, where fewer than the least are left
  SimTime checkpoint_time = 0;
  SimTime test_time = 0;
  SimTime final_test_time = 0;  // of the last test, beyond that
  SimTime held_back = 0;        // for how long workers hold back what they tell of a step
  bool pulls_ahead = false;     // as WorkerValues::copies_parameters
  // What a worker has been given on arrival and has not begun: in real jobs far less than one
  // contribution takes here.
  SimTime ahead = absl::ToInt64Nanoseconds(WorkerSession::kAhead);
  // A second job goes on from the last checkpoint in sync, or on arrival, if there is one.
  bool later_on_arrival = false;
  proto::Mode later_mode = SyncMode();
  std::vector<Fault> later_faults;
  bool disk_is_full = false;       // for some checkpoints, and some parts of them
  bool disk_stands_still = false;  // for some parts
  bool begins_from_file = false;   // model.init_from
  bool power_fails = false;        // with the server that coordinates, each time that it dies
  bool continues = false;          // in the same folder, when a signal has ended it
  bool comes_late = false;         // a worker comes when the training is over
  bool last_tester_dies = false;   // once, when it has told of a part
  bool later_misfit = false;       // before its workers comes one of other data, and stays
  bool script_changes = false;     // when it has given the values that the job begins with

  static Scenario Draw(uint64_t seed);
  // That second job.
  Scenario Later() const;
  // One line; docs/simulator.md has its legend.
  std::string ToString() const;
};

// The setting that runs the scenario, on symbols, without checks.
absl::StatusOr<SimulationSetting> SettingOf(const Scenario& scenario);

}  // namespace rubato

#endif  // RUBATO_TOOLS_SIMULATOR_SCENARIO_H_
