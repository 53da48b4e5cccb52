// Where the other programs of this installation lie.
#ifndef RUBATO_TOOLS_COMMAND_BINARIES_H_
#define RUBATO_TOOLS_COMMAND_BINARIES_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace rubato {

// The path of `name`: in $RUBATO_BIN_DIR if that is set, else beside this program, else where Bazel
// puts it
// (../server/rubato-server, ../worker/rubato-worker). NotFound, saying where was looked.
absl::StatusOr<std::string> FindBinary(absl::string_view name);

}  // namespace rubato

#endif  // RUBATO_TOOLS_COMMAND_BINARIES_H_
