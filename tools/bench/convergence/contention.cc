#include "tools/bench/convergence/contention.h"

#include <cmath>

#include "absl/strings/str_format.h"

namespace rubato {

std::string Contention(const ProcessLoad& load) {
  if (load.workers + load.servers <= load.cores) return "";
  const double work =
      load.workers * (load.micro_batches * load.computing_seconds + load.changing_seconds);
  const double least = kDelaysBeyondWork * work / load.cores / load.micro_batches;
  if (load.delay_seconds >= least) return "";
  return absl::StrFormat(
      "%d workers and %d servers on %d cores would measure how they wait for cores: a micro-batch "
      "is delayed by %.3g ms, expected at least %.3g ms, so that delays are %g times what the "
      "cores work meanwhile; give --compute %.0fms, or simulate them (--simulated)",
      load.workers, load.servers, load.cores, load.delay_seconds * 1e3, least * 1e3,
      kDelaysBeyondWork, std::ceil(least * 1e3));
}

}  // namespace rubato
