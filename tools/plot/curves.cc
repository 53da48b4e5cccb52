#include "tools/plot/curves.h"

#include <algorithm>
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

constexpr char kTrain[] = "train";

// Of each curve the values below `size`.
void Cut(Curves* curves, size_t size) {
  for (auto& [name, values] : *curves) values.resize(std::min(values.size(), size));
}

// The first of these steps, which rise, that is above `step`.
size_t FirstAbove(const std::vector<double>& steps, double step) {
  return static_cast<size_t>(std::upper_bound(steps.begin(), steps.end(), step) - steps.begin());
}

// The run went back: the training lines from `size` on do not count any more, nor do tests of
// parameters behind `step`.
void GoBack(RunCurves* run, size_t size, double step) {
  while (!run->seams.empty() && run->seams.back() >= size) run->seams.pop_back();
  run->seams.push_back(size);
  for (auto& [kind, curves] : run->kinds) {
    Cut(&curves, kind == kTrain ? size : FirstAbove(curves["step"], step));
  }
}

bool AddLine(absl::string_view text, RunCurves* run) {
  const nlohmann::json line = ParseJson(text);
  if (!line.is_object()) return false;
  const auto kind = line.find("kind");
  const auto step = line.find("step");
  if (kind == line.end() || !kind->is_string() || step == line.end() || !step->is_number()) {
    return false;
  }
  Curves& curves = run->kinds[kind->get<std::string>()];
  const std::vector<double>& steps = curves["step"];
  const double now = step->get<double>();
  // Tests run beside each other, so the result of a later one may come first.
  size_t place = FirstAbove(steps, now);
  const bool is_known = place > 0 && steps[place - 1] == now;
  if (is_known) --place;
  if (*kind == kTrain && place < steps.size()) GoBack(run, place, now);
  const bool replaces = place < steps.size() && is_known;
  for (const Figure& figure : Figures()) {
    if (figure.use == Figure::Use::kRecord) continue;
    const std::string name(figure.name);
    const auto value = line.find(name);
    const bool is_number = value != line.end() && value->is_number();
    std::vector<double>& values = curves[name];
    const auto at = values.begin() + static_cast<std::ptrdiff_t>(place);
    const double number = is_number ? value->get<double>() : std::nan("");
    if (replaces) {
      *at = number;
    } else {
      values.insert(at, number);
    }
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
