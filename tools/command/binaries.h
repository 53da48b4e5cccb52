// Finds the other files of this installation.
#ifndef RUBATO_TOOLS_COMMAND_BINARIES_H_
#define RUBATO_TOOLS_COMMAND_BINARIES_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace rubato {

// The path of `name`: in $RUBATO_BIN_DIR if that is set, else beside this program, else where Bazel
// puts it
// (../server/rubato-server, ../worker/rubato-worker). NotFound, with the places that were searched.
absl::StatusOr<std::string> FindBinary(absl::string_view name);

// The path of a third-party program: `name` if it is a path, else searched in $PATH. NotFound if it
// is not there.
absl::StatusOr<std::string> FindProgram(const std::string& name);

// `path`. If nothing is there and it has the form configs/..., the installed example of that name
// in ../share/rubato, relative to this program's folder.
std::string FindConfig(const std::string& path);

}  // namespace rubato

#endif  // RUBATO_TOOLS_COMMAND_BINARIES_H_
