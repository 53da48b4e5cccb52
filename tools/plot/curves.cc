#include "tools/plot/curves.h"

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/json.h"
#include "common/base/status.h"
#include "common/files/run_folder.h"
#include "common/job/job.h"
#include "common/job/schema.h"
#include "server/run/figures.h"

namespace rubato {
namespace {

namespace fs = std::filesystem;

bool AddLine(absl::string_view text, RunCurves* run) {
  const nlohmann::json line = ParseJson(text);
  if (!line.is_object()) return false;
  const auto kind = line.find("kind");
  const auto step = line.find("step");
  if (kind == line.end() || !kind->is_string() || step == line.end() || !step->is_number()) {
    return false;
  }
  Curves& curves = run->kinds[kind->get<std::string>()];
  std::vector<double>& steps = curves["step"];
  size_t size = steps.size();
  while (size > 0 && steps[size - 1] >= step->get<double>()) --size;
  if (size < steps.size() && *kind == "train") {
    while (!run->seams.empty() && run->seams.back() >= size) run->seams.pop_back();
    run->seams.push_back(size);
  }
  for (const Figure& figure : Figures()) {
    if (figure.use == Figure::Use::kRecord) continue;
    const std::string name(figure.name);
    const auto value = line.find(name);
    const bool is_number = value != line.end() && value->is_number();
    curves[name].resize(size);
    curves[name].push_back(is_number ? value->get<double>() : std::nan(""));
  }
  return true;
}

std::string ModeOf(const std::string& job_file) {
  const absl::StatusOr<proto::Job> job = LoadJob(job_file, {}, /*environment=*/{});
  if (!job.ok()) return "";
  return job->consistency().schedule_size() > 0 ? "schedule"
                                                : YamlName(job->consistency().mode().mode());
}

}  // namespace

RunCurves ParseCurves(absl::string_view text) {
  RunCurves run;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    if (end == absl::string_view::npos) break;
    if (end > 0 && !AddLine(text.substr(0, end), &run)) ++run.skipped;
    text.remove_prefix(end + 1);
  }
  return run;
}

absl::StatusOr<RunCurves> ReadCurves(const std::string& path) {
  std::error_code error;
  const bool is_folder = fs::is_directory(path, error);
  if (!is_folder && !fs::exists(path, error)) {
    return absl::NotFoundError(absl::StrCat("found no ", path, ", expected a run's folder"));
  }
  const std::string file = is_folder ? RunFolder(path).MetricsFile() : path;
  if (!fs::exists(file, error)) {
    return absl::NotFoundError(
        absl::StrCat("found no metrics.jsonl in ", path, ", expected a run's folder"));
  }
  RUBATO_ASSIGN_OR_RETURN(const std::string text, ReadSmallFile(file));
  RunCurves run = ParseCurves(text);
  if (run.kinds.empty()) {
    return run.skipped > 0
               ? absl::InvalidArgumentError(
                     absl::StrCat(file,
                                  ": found no line of metrics, expected JSON objects with "
                                  "kind and step"))
               : absl::FailedPreconditionError(absl::StrCat(file, " has no line of metrics yet"));
  }
  // runs/latest is a link: its run has a better name.
  const fs::path folder = fs::canonical(file, error).parent_path();
  run.name = folder.filename().string();
  run.mode = ModeOf(RunFolder(folder.string()).JobFile());
  return run;
}

}  // namespace rubato
