// The summary of a run that has ended well.
#ifndef RUBATO_TOOLS_COMMAND_SUMMARY_H_
#define RUBATO_TOOLS_COMMAND_SUMMARY_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace rubato {

// `json` is the run's summary.json; `run_path` its folder; `next` are commands to suggest.
// InvalidArgument if `json` is no object; what is missing in it or null is shown as "-".
absl::StatusOr<std::string> SummaryText(absl::string_view json, absl::string_view run_path,
                                        const std::vector<std::string>& next);

// `words` as a line that a shell reads back as the same words.
std::string ShellLine(const std::vector<std::string>& words);

}  // namespace rubato

#endif  // RUBATO_TOOLS_COMMAND_SUMMARY_H_
