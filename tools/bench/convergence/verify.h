// Runs cells of a study again and compares what comes of them with its results.jsonl.
#ifndef RUBATO_TOOLS_BENCH_CONVERGENCE_VERIFY_H_
#define RUBATO_TOOLS_BENCH_CONVERGENCE_VERIFY_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/process_exit.h"
#include "tools/bench/convergence/cell_result.h"
#include "tools/bench/convergence/study.h"

namespace rubato {

// A line of results.jsonl, without its newline.
struct KeptLine {
  DoneCell cell;
  std::string text;
};

// Those of `cells` in `results_jsonl`, in the order of `cells`; without one that is not there.
// DataLoss for a line of theirs that is no result.
absl::StatusOr<std::vector<KeptLine>> LinesOf(const Study& study, const std::vector<Cell>& cells,
                                              absl::string_view results_jsonl);

// `count` of `lines` that have not failed, or all if they are fewer: each as likely as any other,
// and the same for the same seed. In the order of `lines`.
std::vector<KeptLine> Draw(std::vector<KeptLine> lines, size_t count, uint64_t seed);

struct Verification {
  int signal = 0;  // that ended it
  std::vector<std::string>
      differing;  // of each cell that differs its name, its line and the new one
};

// Runs the cells of `lines` again in `folder`, `jobs` side by side, and removes it if all are the
// same.
absl::StatusOr<Verification> Repeat(const Study& study, const std::vector<KeptLine>& lines,
                                    const std::string& folder, size_t jobs, SignalWatcher* signals);

}  // namespace rubato

#endif  // RUBATO_TOOLS_BENCH_CONVERGENCE_VERIFY_H_
