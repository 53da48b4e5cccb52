#include "tools/command/parameters_file.h"

#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/files/checkpoint.h"
#include "common/files/run_folder.h"

namespace rubato {

absl::StatusOr<std::string> FindParametersFile(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (!fs::exists(path, error)) {
    return absl::NotFoundError(
        absl::StrCat("found no ", path, ", expected a run's folder or a safetensors file"));
  }
  if (!fs::is_directory(path, error)) return path;
  if (fs::exists(path + "/manifest.json", error)) {
    RUBATO_RETURN_IF_ERROR(CheckCheckpoint(path).status());
  }
  const std::string file = RunFolder(path).ParametersFile();
  if (fs::exists(file, error)) return file;
  if (!fs::exists(RunFolder(path).JobFile(), error)) {
    return absl::NotFoundError(absl::StrCat("found no parameters.safetensors in ", path,
                                            ", expected a run's folder or a checkpoint"));
  }
  std::vector<std::string> damaged;  // newer ones: what is found is printed
  const absl::StatusOr<std::string> checkpoint =
      fs::is_directory(RunFolder(path).CheckpointFolder(), error) ? FindCheckpoint(path, &damaged)
                                                                  : absl::NotFoundError("none");
  if (checkpoint.ok()) return RunFolder(*checkpoint).ParametersFile();
  return absl::NotFoundError(
      absl::StrCat("found no parameters.safetensors in ", path,
                   ": the run has written no final parameters and no whole checkpoint"));
}

}  // namespace rubato
