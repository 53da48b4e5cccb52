// `rubato bench convergence CONFIG.yaml --mode MODE --mode MODE --target eval/accuracy=0.88`.
#ifndef RUBATO_TOOLS_BENCH_CONVERGENCE_CONVERGENCE_H_
#define RUBATO_TOOLS_BENCH_CONVERGENCE_CONVERGENCE_H_

#include <string>
#include <vector>

#include "common/base/process_exit.h"

namespace rubato {

// `arguments` without "rubato bench convergence". Returns the exit code.
int BenchConvergenceMain(const std::vector<std::string>& arguments, SignalWatcher& signals);

}  // namespace rubato

#endif  // RUBATO_TOOLS_BENCH_CONVERGENCE_CONVERGENCE_H_
