#include "tools/resume.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/checkpoint.h"
#include "common/run_folder.h"
#include "common/status.h"

namespace rubato {

namespace fs = std::filesystem;

std::string NewestCheckpoint(const std::string& runs, const std::string& name,
                             std::vector<std::string>* warnings) {
  std::vector<std::string> paths;
  std::error_code error;
  for (fs::directory_iterator it(runs, error), end; !error && it != end; it.increment(error)) {
    // NAME-20261121T075901Z-3fa9: 22 characters follow the name.
    const std::string folder = it->path().filename().string();
    if (folder.size() == name.size() + 22 && absl::StartsWith(folder, name + "-")) {
      paths.push_back(it->path().string());
    }
  }
  std::sort(paths.rbegin(), paths.rend());
  for (const std::string& path : paths) {
    if (!fs::is_directory(path + "/checkpoints", error)) continue;
    const absl::StatusOr<std::string> checkpoint = FindCheckpoint(path, warnings);
    if (checkpoint.ok()) return *checkpoint;
  }
  return "";
}

absl::Status CopyMetrics(const std::string& checkpoint, int64_t step, const std::string& to) {
  const std::string run = fs::path(checkpoint).parent_path().parent_path().string();
  const std::string from = RunFolder(run).MetricsFile();
  std::error_code error;
  if (!fs::exists(from, error)) return absl::OkStatus();
  RUBATO_ASSIGN_OR_RETURN(const std::string text, ReadSmallFile(from));
  std::string kept;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (json.is_object() && json.value("step", int64_t{0}) <= step) {
      absl::StrAppend(&kept, line, "\n");
    }
  }
  return WriteFileAtomically(to, kept);
}

}  // namespace rubato
