// Where the other files of this installation lie.
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

// The path of a program of another's: `name` if it is a path, else where $PATH has it. NotFound if
// it is nowhere there.
absl::StatusOr<std::string> FindProgram(const std::string& name);

// `path`, unless nothing is there and it names an example that is installed: configs/... is then
// looked for in ../share/rubato beside this program's folder.
std::string FindConfig(const std::string& path);

}  // namespace rubato

#endif  // RUBATO_TOOLS_COMMAND_BINARIES_H_
