// The result of one run of a study: read from the run's folder, kept as a line of JSON.
#ifndef RUBATO_TOOLS_BENCH_CONVERGENCE_CELL_RESULT_H_
#define RUBATO_TOOLS_BENCH_CONVERGENCE_CELL_RESULT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/run/metrics.h"
#include "tools/bench/convergence/study.h"
#include "tools/bench/convergence/verdict.h"
#include "tools/plot/curves.h"

namespace rubato {

struct CellResult {
  std::string error;     // why there is no outcome, if there is none
  std::string diverged;  // which loss or gradient was not finite, if that ended it
  RunOutcome outcome;
  double end_seconds = 0;           // of training
  std::optional<int64_t> updates;   // of a block; not known of a run that diverged
  std::optional<double> staleness;  // of an update, mean; likewise
  // Updates of all blocks by staleness, on arrival: as in summary.json.
  std::vector<int64_t> staleness_counts;
  std::vector<WorkerTime> workers;  // by number
  std::optional<double> test;       // the target's metric, of the test split, at the end
  std::string digest;               // of the final parameters; empty if the run diverged
  // The share of the time that the cores of the machine were busy; no part of the result as JSON.
  std::optional<double> busy;
};

// A cell that has run.
struct DoneCell {
  Cell cell;
  CellResult result;
};

// A run's evaluations by its curves. Training time at an evaluation is that of the lines of
// training around it, so the time that the evaluation takes does not count. A script tests the same
// at the end as before, which is its last evaluation. FailedPrecondition if the run was not
// evaluated.
absl::StatusOr<std::vector<Evaluation>> EvaluationsOf(const RunCurves& curves,
                                                      const Target& target);

// The result of the ended run in `folder`: it has finished, or has diverged, which counts as a miss
// at its end. Else the error of reading it.
absl::StatusOr<CellResult> ReadCell(const std::string& folder, const Target& target);

// One object; the same bytes for the same result.
std::string ResultJson(const CellResult& result);
absl::StatusOr<CellResult> ParseResult(absl::string_view json);

}  // namespace rubato

#endif  // RUBATO_TOOLS_BENCH_CONVERGENCE_CELL_RESULT_H_
