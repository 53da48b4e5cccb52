// Runs simulations whose cores may abort or run forever.
#ifndef RUBATO_TOOLS_SIMULATOR_APART_H_
#define RUBATO_TOOLS_SIMULATOR_APART_H_

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace rubato {

// Calls `run` in a child process, so that this process is not affected. Returns its status
// (Internal for any error); Aborted if the child ended in another way, for example after
// `most_seconds` of processor time (the longest drawn case takes less than one second). No other
// thread may run.
absl::Status RunApart(absl::FunctionRef<absl::Status()> run, int most_seconds = 5);

}  // namespace rubato

#endif  // RUBATO_TOOLS_SIMULATOR_APART_H_
