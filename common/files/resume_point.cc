#include "common/files/resume_point.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/json.h"
#include "common/files/checkpoint.h"
#include "common/files/run_folder.h"

namespace rubato {
namespace {

namespace fs = std::filesystem;

// What the run in the folder says of itself under `key`: its state, or that of its last term where
// the machine lost power since. Empty if neither says it.
std::string StateText(const std::string& path, const char* key) {
  for (const std::string& file : {RunFolder(path).StateFile(), RunFolder(path).TermFile()}) {
    const absl::StatusOr<std::string> state = ReadSmallFile(file);
    const std::string text = state.ok() ? TextAt(ParseJson(*state), key) : "";
    if (!text.empty()) return text;
  }
  return "";
}

// As FindCheckpoint; but a run that has no whole one of its own stands for the one that it began
// from.
absl::StatusOr<std::string> FindOfRun(const std::string& path, std::vector<std::string>* warnings) {
  absl::StatusOr<std::string> own = FindCheckpoint(path, warnings);
  if (!absl::IsNotFound(own.status())) return own;
  const std::string begun_from = StateText(path, "begun_from");
  if (begun_from.empty()) return own;
  absl::StatusOr<std::string> found = FindCheckpoint(begun_from, warnings);
  if (!found.ok()) {
    return absl::Status(found.status().code(),
                        absl::StrCat(own.status().message(),
                                     "; of what it began from: ", found.status().message()));
  }
  warnings->push_back(
      absl::StrCat(own.status().message(), ": goes on from what it began from, ", *found));
  return found;
}

// When the run in `folder` began, as 20261121T075901Z, if it is one of `name`; else empty. That is
// how the folder is called, or what its state says where it was given another name, as in pods.
std::string Begun(const fs::directory_entry& folder, const std::string& name) {
  // NAME-20261121T075901Z-3fa9: 22 characters follow the name.
  const std::string called = folder.path().filename().string();
  if (called.size() == name.size() + 22 && absl::StartsWith(called, name + "-")) {
    return called.substr(name.size() + 1, 16);
  }
  std::error_code error;
  if (folder.is_symlink(error)) return "";  // runs/latest
  const std::string path = folder.path().string();
  return StateText(path, "name") == name ? StateText(path, "begun") : "";
}

// Empty if there is none.
std::string NewestCheckpoint(const std::string& runs, const std::string& name,
                             std::vector<std::string>* warnings) {
  std::vector<std::pair<std::string, std::string>> begun;  // when, and the path
  std::error_code error;
  for (fs::directory_iterator it(runs, error), end; !error && it != end; it.increment(error)) {
    const std::string when = Begun(*it, name);
    if (!when.empty()) begun.emplace_back(when, it->path().string());
  }
  std::sort(begun.rbegin(), begun.rend());
  std::string found;
  std::vector<std::string> unread;  // why
  for (const auto& [when, path] : begun) {
    if (const absl::Status status = CheckAccess(path); !status.ok()) {  // another user's
      unread.emplace_back(status.message());
      continue;
    }
    // Without these it is a simulated one, whose workers were not there.
    const RunFolder run(path);
    if (!fs::exists(run.StateFile(), error) && !fs::exists(run.TermFile(), error)) continue;
    const absl::StatusOr<std::string> checkpoint = FindOfRun(path, warnings);
    if (!checkpoint.ok()) continue;
    found = *checkpoint;
    break;
  }
  if (!unread.empty()) {
    const size_t more = unread.size() - 1;
    warnings->push_back(absl::StrCat("passed over: ", unread[0],
                                     more == 0   ? ""
                                     : more == 1 ? "; and another run"
                                                 : absl::StrCat("; and ", more, " other runs")));
  }
  return found;
}

// Without links on the way: runs/latest is about to point to the new run.
std::string WithoutLinks(const std::string& path) {
  std::error_code error;
  const fs::path real = fs::canonical(path, error);
  if (error || real == fs::absolute(path).lexically_normal()) return path;
  const fs::path near = real.lexically_relative(fs::current_path(error));
  return near.empty() || *near.begin() == ".." ? real.string() : near.string();
}

}  // namespace

bool IsResumeMode(const std::string& flag) {
  return flag == "never" || flag == "auto" || flag == "required";
}

bool AsksForNewest(const proto::Job& job, const std::string& flag) {
  if (!flag.empty()) return flag == "auto" || flag == "required";
  return job.checkpoint().resume() != proto::Checkpoint::RESUME_NEVER;
}

std::string NoneFound(const proto::Job& job, const std::string& runs) {
  return absl::StrCat("found no whole checkpoint of a run of ", job.name(), " under ", runs);
}

absl::StatusOr<std::string> ResumePoint(const proto::Job& job, const std::string& flag,
                                        const std::string& runs,
                                        std::vector<std::string>* warnings) {
  if (!flag.empty() && !IsResumeMode(flag)) {
    return FindOfRun(WithoutLinks(flag), warnings);
  }
  if (!AsksForNewest(job, flag)) return "";
  const bool required = flag.empty()
                            ? job.checkpoint().resume() == proto::Checkpoint::RESUME_REQUIRED
                            : flag == "required";
  const std::string checkpoint = NewestCheckpoint(runs, job.name(), warnings);
  if (required && checkpoint.empty()) {
    return absl::NotFoundError(absl::StrCat(flag.empty() ? "checkpoint.resume" : "--resume", ": ",
                                            NoneFound(job, runs),
                                            ", expected one, because it is required"));
  }
  return checkpoint;
}

}  // namespace rubato
