// The curves of a run, read from its metrics.jsonl.
#ifndef RUBATO_TOOLS_PLOT_CURVES_H_
#define RUBATO_TOOLS_PLOT_CURVES_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace rubato {

// The axes and curves of server/run/figures.h by name, and the first 32 others of scripts' tests,
// all of one length, by rising samples. NaN stands for what is null or missing.
using Curves = std::map<std::string, std::vector<double>>;

struct RunCurves {
  std::string name;                     // of the run's folder
  std::string mode;                     // "sync", "sync, async"; empty if the run does not say
  std::map<std::string, Curves> kinds;  // by what they are of: "train", "test", "eval"
  // Indices of the training lines that are the first after the run went back to a checkpoint.
  std::vector<size_t> seams;
  // Those that are the first in another mode than the line before, and the mode.
  std::vector<std::pair<size_t, std::string>> switches;
  int64_t skipped = 0;  // lines that are no metrics
};

// `path` is a run's folder, or a file of metrics. NotFound if there is none, FailedPrecondition if
// it has no metrics yet. A run that was taken up again repeats steps: their later lines count. A
// last line without an end, which is being written, is left out.
absl::StatusOr<RunCurves> ReadCurves(const std::string& path);

// The curves in the text of a metrics.jsonl; name and mode stay empty.
RunCurves ParseCurves(absl::string_view text);

}  // namespace rubato

#endif  // RUBATO_TOOLS_PLOT_CURVES_H_
