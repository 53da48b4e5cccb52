// A simulation that leaves the run folder that `rubato train` would, in virtual time.
#ifndef RUBATO_TOOLS_SIMULATOR_SIMULATED_RUN_H_
#define RUBATO_TOOLS_SIMULATOR_SIMULATED_RUN_H_

#include <string>

#include "absl/status/statusor.h"
#include "common/files/run_folder.h"
#include "common/job/job.h"
#include "tools/simulator/simulation.h"

namespace rubato {

// What a simulation tells besides the run's own summary.
struct SimulatedFigures {
  double seconds = 0;  // virtual, of the training
  int64_t steps = 0;
  double computing = 0;  // share of the workers' time spent computing, mean
  double slowest = 0;    // and of the worker that computed least
  double in_share = 0;   // of the time that the busiest shard's card was receiving
  double out_share = 0;  // … sending
  int64_t events = 0;
  int64_t bytes = 0;
  std::string modes;        // that held, in order
  bool on_arrival = false;  // one of them
  std::string summary_json;
};

// Runs `setting` (whose callbacks are ignored) and writes into `folder`: job.yaml, metrics.jsonl,
// TensorBoard's events, logs/simulation.log, and at the end summary.json and, with floats,
// checkpoints and the parameters. Errors of the run, and of files that cannot be written.
absl::StatusOr<SimulatedFigures> RunSimulation(SimulationSetting setting, const Sources& sources,
                                               const RunFolder& folder);

}  // namespace rubato

#endif  // RUBATO_TOOLS_SIMULATOR_SIMULATED_RUN_H_
