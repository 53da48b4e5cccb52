// The log of a process that `rubato train` has started, which may run for weeks.
#ifndef RUBATO_TOOLS_COMMAND_LOG_FILE_H_
#define RUBATO_TOOLS_COMMAND_LOG_FILE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace rubato {

// Begins the log anew if it is larger than `max_bytes`: what is in it becomes PATH.1, in place of
// the one that was there. Its writers keep it open and append, so it is emptied, not renamed; what
// they write at that very moment may be lost. The error names the file, which is then as it was.
absl::Status CutLog(const std::string& path, int64_t max_bytes);

}  // namespace rubato

#endif  // RUBATO_TOOLS_COMMAND_LOG_FILE_H_
