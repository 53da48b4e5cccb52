#include "tools/parameters_file.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "common/run_folder.h"

namespace rubato {

absl::StatusOr<std::string> FindParametersFile(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (!fs::exists(path, error)) {
    return absl::NotFoundError(
        absl::StrCat("found no ", path, ", expected a run's folder or a safetensors file"));
  }
  if (!fs::is_directory(path, error)) return path;
  const std::string file = RunFolder(path).ParametersFile();
  if (fs::exists(file, error)) return file;
  return absl::NotFoundError(absl::StrCat("found no parameters.safetensors in ", path,
                                          fs::exists(RunFolder(path).JobFile(), error)
                                              ? ": the run has written no final parameters"
                                              : ", expected a run's folder"));
}

}  // namespace rubato
