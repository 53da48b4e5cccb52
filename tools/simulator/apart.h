// Runs simulations whose cores may abort, or run for ever.
#ifndef RUBATO_TOOLS_SIMULATOR_APART_H_
#define RUBATO_TOOLS_SIMULATOR_APART_H_

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace rubato {

// What `run` returns (but Internal for all that is not OK) in a process of its own, which keeps
// nothing of it; Aborted if that process has ended otherwise, as it does after `most_seconds` of
// processor time (the longest drawn case takes less than one). No other thread may run.
absl::Status RunApart(absl::FunctionRef<absl::Status()> run, int most_seconds = 5);

}  // namespace rubato

#endif  // RUBATO_TOOLS_SIMULATOR_APART_H_
