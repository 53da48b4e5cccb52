// What a parameter file holds: the core of `rubato inspect`.
#ifndef RUBATO_TOOLS_COMMAND_INSPECT_H_
#define RUBATO_TOOLS_COMMAND_INSPECT_H_

#include <string>

#include "absl/status/statusor.h"

namespace rubato {

// A page of text about `path`, a safetensors file or a run folder (its final
// parameters.safetensors): a line for each tensor with name, type, shape and, for floats, least,
// greatest, mean, standard deviation and how many are not finite; then totals, and last `digest: `
// with TensorsDigest() of the file. NotFound if there is no such file; InvalidArgument if it is
// damaged.
absl::StatusOr<std::string> InspectText(const std::string& path);

}  // namespace rubato

#endif  // RUBATO_TOOLS_COMMAND_INSPECT_H_
