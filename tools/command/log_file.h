// The log of a process that `rubato train` has started, which may run for weeks.
#ifndef RUBATO_TOOLS_COMMAND_LOG_FILE_H_
#define RUBATO_TOOLS_COMMAND_LOG_FILE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace rubato {

// Rotates the log if it is larger than `max_bytes`: its contents replace PATH.1. Writers keep the
// log open and append, so it is copied and truncated, not renamed; text that they write at that
// moment may be lost. The error names the file, which is then unchanged.
absl::Status CutLog(const std::string& path, int64_t max_bytes);

}  // namespace rubato

#endif  // RUBATO_TOOLS_COMMAND_LOG_FILE_H_
