// `rubato export`: the parameters of a run as one safetensors file.
#ifndef RUBATO_TOOLS_COMMAND_EXPORT_H_
#define RUBATO_TOOLS_COMMAND_EXPORT_H_

#include <string>

#include "absl/status/statusor.h"

namespace rubato {

// Copies the parameters of `from` (see FindParameters), under their names, into the new file `to`,
// and returns a line that says what was written, with its digest. With `optimizer` the optimizer's
// slots instead, "1.weight.momentum_buffer"; FailedPrecondition if `from` is not a checkpoint with
// slots. AlreadyExists if `to` exists; else the errors of reading and writing. Needs little memory.
absl::StatusOr<std::string> ExportParameters(const std::string& from, const std::string& to,
                                             bool optimizer = false);

}  // namespace rubato

#endif  // RUBATO_TOOLS_COMMAND_EXPORT_H_
