#include "tests/worker_trace.h"

#include <sstream>

namespace rubato {

WorkerTrace ReadWorkerTrace(const std::string& text) {
  WorkerTrace trace;
  std::istringstream lines(text.substr(0, text.rfind('\n') + 1));
  for (std::string kind; lines >> kind;) {
    if (kind == "pull") {
      int64_t clock, block, version, staleness;
      lines >> clock >> block >> version >> staleness;
      if (static_cast<int64_t>(trace.pulls.size()) <= block) trace.pulls.resize(block + 1);
      trace.pulls[block].push_back({clock, version});
      if (trace.computed.empty()) continue;
      int64_t& known = trace.computed.back().staleness[block];
      if (known < 0) known = staleness;
    } else {
      WorkerTrace::Computed computed;
      lines >> computed.lineage >> computed.clock >> computed.unit;
      for (const std::vector<WorkerTrace::Pulled>& pulls : trace.pulls) {
        computed.read.push_back(pulls.back().version);
      }
      computed.staleness.resize(trace.pulls.size(), -1);
      trace.computed.push_back(computed);
    }
  }
  return trace;
}

}  // namespace rubato
