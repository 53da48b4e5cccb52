#include "tools/command/parameters_file.h"

#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status.h"
#include "common/files/checkpoint.h"
#include "common/files/run_folder.h"

namespace rubato {

namespace {

namespace fs = std::filesystem;

absl::StatusOr<FoundParameters> OpenCheckpoint(const std::string& path) {
  RUBATO_ASSIGN_OR_RETURN(proto::Manifest manifest, CheckCheckpoint(path));
  RUBATO_ASSIGN_OR_RETURN(SafetensorsReader file, OpenVector(path, manifest, ""));
  return FoundParameters{std::move(file), path, std::move(manifest)};
}

bool IsCheckpoint(const std::string& path) {
  std::error_code error;
  return fs::exists(path + "/manifest.json", error);
}

absl::StatusOr<FoundParameters> OpenFile(const std::string& path) {
  RUBATO_ASSIGN_OR_RETURN(SafetensorsReader file, SafetensorsReader::Open(path));
  const fs::path folder = fs::path(path).parent_path();
  FoundParameters found{std::move(file), folder.empty() ? "." : folder.string(), std::nullopt};
  if (IsCheckpoint(found.folder)) {
    RUBATO_ASSIGN_OR_RETURN(found.manifest, CheckCheckpoint(found.folder));
  }
  return found;
}

}  // namespace

absl::StatusOr<FoundParameters> FindParameters(const std::string& path) {
  RUBATO_RETURN_IF_ERROR(CheckAccess(path));
  std::error_code error;
  if (!fs::exists(path, error)) {
    return absl::NotFoundError(
        absl::StrCat("found no ", path, ", expected a run's folder or a safetensors file"));
  }
  if (!fs::is_directory(path, error)) return OpenFile(path);
  if (IsCheckpoint(path)) return OpenCheckpoint(path);
  const std::string file = RunFolder(path).ParametersFile();
  if (fs::exists(file, error)) return OpenFile(file);
  if (!fs::exists(RunFolder(path).JobFile(), error)) {
    return absl::NotFoundError(absl::StrCat("found no parameters.safetensors in ", path,
                                            ", expected a run's folder or a checkpoint"));
  }
  std::vector<std::string> damaged;
  const absl::StatusOr<std::string> checkpoint =
      fs::is_directory(RunFolder(path).CheckpointFolder(), error) ? FindCheckpoint(path, &damaged)
                                                                  : absl::NotFoundError("none");
  if (checkpoint.ok()) return OpenCheckpoint(*checkpoint);
  return absl::NotFoundError(
      absl::StrCat("found no parameters.safetensors in ", path,
                   ": the run has written no final parameters and no whole checkpoint",
                   damaged.empty() ? "" : "; ", absl::StrJoin(damaged, "; ")));
}

}  // namespace rubato
