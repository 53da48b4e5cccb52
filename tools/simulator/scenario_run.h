// Runs a drawn case on symbols to its end, and judges it.
#ifndef RUBATO_TOOLS_SIMULATOR_SCENARIO_RUN_H_
#define RUBATO_TOOLS_SIMULATOR_SCENARIO_RUN_H_

#include <ostream>

#include "absl/status/status.h"
#include "tools/simulator/coverage.h"
#include "tools/simulator/scenario.h"

namespace rubato {

// Internal, saying which invariant does not hold, or what the simulation failed with.
// The coordinator's views and lines for people go to `log`, if there is one.
absl::Status RunScenario(const Scenario& scenario, Coverage* coverage, std::ostream* log = nullptr);

}  // namespace rubato

#endif  // RUBATO_TOOLS_SIMULATOR_SCENARIO_RUN_H_
