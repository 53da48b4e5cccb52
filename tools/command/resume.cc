#include "tools/command/resume.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/status.h"
#include "common/files/run_folder.h"

namespace rubato {

namespace fs = std::filesystem;

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
