// The summary of a run that has ended well.
#ifndef RUBATO_TOOLS_COMMAND_SUMMARY_H_
#define RUBATO_TOOLS_COMMAND_SUMMARY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace rubato {

// What a resumed run had trained when it was resumed, with those that it went on from.
struct TrainedBefore {
  int64_t samples = 0;
  double seconds = 0;
};

// `summary` is the run's summary.json; `run_path` its folder; `next` are commands to suggest;
// `before` is of a run that was resumed. InvalidArgument if it is no object; what is missing in it
// or null is shown as "-".
absl::StatusOr<std::string> SummaryText(const nlohmann::json& summary, absl::string_view run_path,
                                        const std::vector<std::string>& next,
                                        std::optional<TrainedBefore> before = std::nullopt);

// What a run may be tried with whose workers waited for its servers.
struct MoreServers {
  int64_t servers = 0;
  double waited = 0;  // the share of its time that the worker waited which waited least
};

// Of a run of `servers` servers on a host with `idle` processors beside all its threads; blocks
// have up to `block_bytes`. Nothing if some worker computed for half of its time or more (for that
// one others wait, as well), if servers have too few parameters for their number to matter, or if
// there are no processors for more.
std::optional<MoreServers> SuggestServers(const nlohmann::json& summary, int64_t servers,
                                          int64_t idle, int64_t block_bytes);

// `words` as a line that a shell reads back as the same words.
std::string ShellLine(const std::vector<std::string>& words);

}  // namespace rubato

#endif  // RUBATO_TOOLS_COMMAND_SUMMARY_H_
