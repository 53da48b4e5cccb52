// The shortest harm that makes a drawn case fail still.
#ifndef RUBATO_TOOLS_SIMULATOR_SHRINK_H_
#define RUBATO_TOOLS_SIMULATOR_SHRINK_H_

#include "absl/functional/function_ref.h"
#include "tools/simulator/scenario.h"

namespace rubato {

// Whether the case fails: by an invariant, or because a core breaks a rule of its own and aborts.
// It runs in a process of its own, so that no other thread may run.
bool Fails(const Scenario& scenario);

// `scenario`, for which `fails` is true, without all without which it is true as well: faults, what
// is asked for by hand, settings of the job, and what the network and the workers' speeds add.
Scenario Shrink(Scenario scenario, absl::FunctionRef<bool(const Scenario&)> fails = Fails);

}  // namespace rubato

#endif  // RUBATO_TOOLS_SIMULATOR_SHRINK_H_
