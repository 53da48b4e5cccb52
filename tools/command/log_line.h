// A line of a process's log, as Log writes it (common/base/log.h).
#ifndef RUBATO_TOOLS_COMMAND_LOG_LINE_H_
#define RUBATO_TOOLS_COMMAND_LOG_LINE_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace rubato {

struct LogLine {
  std::string name;                    // of its process: "worker 3"; empty if the line has none
  std::optional<std::string> warning;  // the text of a warning, with its fields
  bool is_event = false;               // Log has written it
  bool is_info = false;                // the same, and it reports no failure
};

// In either format; any line of a log may be given, such as what a script prints. An event has a
// time and one of these processes' roles: without them nothing is set.
LogLine ParseLogLine(absl::string_view line);

}  // namespace rubato

#endif  // RUBATO_TOOLS_COMMAND_LOG_LINE_H_
