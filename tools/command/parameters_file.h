// Where the parameters of a run lie.
#ifndef RUBATO_TOOLS_COMMAND_PARAMETERS_FILE_H_
#define RUBATO_TOOLS_COMMAND_PARAMETERS_FILE_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "common/files/safetensors.h"
#include "proto/checkpoint.pb.h"

namespace rubato {

// The parameters that `path` stands for: a safetensors file; the folder of a run, or of a
// checkpoint, in one file or several; of a run that has not come to its end, those of its newest
// whole checkpoint.
struct FoundParameters {
  SafetensorsReader file;
  std::string folder;                       // that it lies in
  std::optional<proto::Manifest> manifest;  // of a checkpoint
};

// NotFound, saying what is missing; InvalidArgument if it is a damaged checkpoint or no safetensors
// file; PermissionDenied.
absl::StatusOr<FoundParameters> FindParameters(const std::string& path);

}  // namespace rubato

#endif  // RUBATO_TOOLS_COMMAND_PARAMETERS_FILE_H_
