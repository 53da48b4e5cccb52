// Checks whether real processes on one machine measure a mode, or merely contention for the cores.
#ifndef RUBATO_TOOLS_BENCH_CONVERGENCE_CONTENTION_H_
#define RUBATO_TOOLS_BENCH_CONVERGENCE_CONTENTION_H_

#include <string>

namespace rubato {

// Delays must be at least this many times as long as the work of the cores in that time: then the
// work changes times by 5 % at most.
constexpr double kDelaysBeyondWork = 20;

struct ProcessLoad {
  int workers = 0, servers = 0, cores = 0;
  double micro_batches = 0;      // of a computation of one worker
  double delay_seconds = 0;      // that a micro-batch is delayed by
  double computing_seconds = 0;  // of a core, for a micro-batch
  double changing_seconds = 0;   // of a core, that servers take to sum and apply one contribution
};

// A sentence about the problem, with the delay that is needed; empty if there is none.
std::string Contention(const ProcessLoad& load);

}  // namespace rubato

#endif  // RUBATO_TOOLS_BENCH_CONVERGENCE_CONTENTION_H_
