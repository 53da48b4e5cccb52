#include "tools/command/binaries.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace rubato {
namespace {

// The folder that this program lies in.
std::filesystem::path Here() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
}

}  // namespace

absl::StatusOr<std::string> FindBinary(absl::string_view name) {
  const std::string leaf(name);
  std::vector<std::string> candidates;
  if (const char* folder = getenv("RUBATO_BIN_DIR"); folder != nullptr && *folder != '\0') {
    candidates.push_back(absl::StrCat(folder, "/", leaf));
  } else {
    const std::filesystem::path here = Here();
    const std::string part(absl::StripPrefix(leaf, "rubato-"));
    candidates = {(here / leaf).string(), (here.parent_path() / part / leaf).string()};
  }
  for (const std::string& candidate : candidates) {
    if (access(candidate.c_str(), X_OK) == 0 && !std::filesystem::is_directory(candidate))
      return candidate;
  }
  return absl::NotFoundError(absl::StrCat("found no program ", leaf, "; looked for ",
                                          absl::StrJoin(candidates, " and "),
                                          " (RUBATO_BIN_DIR names another folder)"));
}

absl::StatusOr<std::string> FindProgram(const std::string& name) {
  if (absl::StrContains(name, '/')) return name;
  const char* const path = std::getenv("PATH");
  for (const absl::string_view folder : absl::StrSplit(path != nullptr ? path : "", ':')) {
    std::string program = absl::StrCat(folder, "/", name);
    if (!folder.empty() && access(program.c_str(), X_OK) == 0) return program;
  }
  return absl::NotFoundError(
      absl::StrCat("script: found no program ", name, " in the folders of PATH"));
}

std::string FindConfig(const std::string& path) {
  if (!absl::StartsWith(path, "configs/") || access(path.c_str(), F_OK) == 0) return path;
  const std::string installed = (Here().parent_path() / "share/rubato" / path).string();
  return access(installed.c_str(), F_OK) == 0 ? installed : path;
}

}  // namespace rubato
