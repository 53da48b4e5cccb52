// Where the parameters of a run lie.
#ifndef RUBATO_TOOLS_COMMAND_PARAMETERS_FILE_H_
#define RUBATO_TOOLS_COMMAND_PARAMETERS_FILE_H_

#include <string>

#include "absl/status/statusor.h"

namespace rubato {

// The safetensors file that `path` stands for: itself, if it is a file; parameters.safetensors in
// it, if it is a folder, of a run or of a checkpoint; of a run that has not come to its end, that
// of its newest whole checkpoint. NotFound, saying what is missing; InvalidArgument if it is a
// damaged checkpoint.
absl::StatusOr<std::string> FindParametersFile(const std::string& path);

}  // namespace rubato

#endif  // RUBATO_TOOLS_COMMAND_PARAMETERS_FILE_H_
