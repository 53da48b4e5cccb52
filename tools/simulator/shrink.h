// Shrinks a failing case to a minimal one that still fails.
#ifndef RUBATO_TOOLS_SIMULATOR_SHRINK_H_
#define RUBATO_TOOLS_SIMULATOR_SHRINK_H_

#include "absl/functional/function_ref.h"
#include "tools/simulator/scenario.h"

namespace rubato {

// Whether the case fails: by an invariant, or because a core breaks a rule of its own and aborts.
// It runs in a process of its own, so that no other thread may run.
bool Fails(const Scenario& scenario);

// `scenario`, for which `fails` is true, without everything that is not needed for it to fail:
// faults, requests by hand, settings of the job, and effects of the network and of the workers'
// speeds.
Scenario Shrink(Scenario scenario, absl::FunctionRef<bool(const Scenario&)> fails = Fails);

}  // namespace rubato

#endif  // RUBATO_TOOLS_SIMULATOR_SHRINK_H_
