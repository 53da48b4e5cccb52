// `rubato token`: the secret of a job and the keys of its roles.
#ifndef RUBATO_TOOLS_COMMAND_TOKEN_H_
#define RUBATO_TOOLS_COMMAND_TOKEN_H_

#include <string>

#include "absl/status/statusor.h"

namespace rubato {

// One line: a new secret if `role` is empty, else the key of that role, of the secret in the file
// `from`. InvalidArgument if there is no such role, or one of the two is missing; else errors as
// ReadKeyFile.
absl::StatusOr<std::string> TokenText(const std::string& role, const std::string& from);

}  // namespace rubato

#endif  // RUBATO_TOOLS_COMMAND_TOKEN_H_
