// `rubato export`: the parameters of a run as one safetensors file.
#ifndef RUBATO_TOOLS_COMMAND_EXPORT_H_
#define RUBATO_TOOLS_COMMAND_EXPORT_H_

#include <string>

#include "absl/status/statusor.h"

namespace rubato {

// Copies the parameters of `from` (see FindParametersFile), under their names, into the new file
// `to`, and returns a line that says what was written, with its digest. AlreadyExists if there is
// something at `to`; else the errors of reading and writing. Needs little memory.
absl::StatusOr<std::string> ExportParameters(const std::string& from, const std::string& to);

}  // namespace rubato

#endif  // RUBATO_TOOLS_COMMAND_EXPORT_H_
