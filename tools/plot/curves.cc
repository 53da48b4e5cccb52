#include "tools/plot/curves.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
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

// The curves, and how far the run was at each line: samples, or steps where no line tells samples.
struct Parsed {
  RunCurves run;
  std::map<std::string, std::vector<double>> places;  // by kind; each rises
  std::vector<std::string> modes;                     // of each training line
};

// The run went back: the training lines from `size` on do not count any more, nor do tests of
// parameters behind `place`.
void GoBack(Parsed* parsed, size_t size, double place) {
  std::vector<size_t>& seams = parsed->run.seams;
  while (!seams.empty() && seams.back() >= size) seams.pop_back();
  seams.push_back(size);
  parsed->modes.resize(size);
  for (auto& [kind, places] : parsed->places) {
    const auto behind = std::upper_bound(places.begin(), places.end(), place);
    const size_t kept = kind == kTrain ? size : static_cast<size_t>(behind - places.begin());
    places.resize(kept);
    for (auto& [name, values] : parsed->run.kinds[kind]) values.resize(kept);
  }
}

bool AddLine(absl::string_view text, Parsed* parsed) {
  const nlohmann::json line = ParseJson(text);
  if (!line.is_object()) return false;
  const auto kind = line.find("kind");
  const auto step = line.find("step");
  if (kind != line.end() && *kind == "back") return true;  // seen by what comes next
  if (kind == line.end() || !kind->is_string() || step == line.end() || !step->is_number()) {
    return false;
  }
  const auto samples = line.find("samples");
  // On arrival a step is so many samples, and several lines may be of one.
  const double now =
      samples != line.end() && samples->is_number() ? samples->get<double>() : step->get<double>();
  std::vector<double>& places = parsed->places[kind->get<std::string>()];
  // Tests run beside each other, so the result of a later one may come first.
  const auto at = std::lower_bound(places.begin(), places.end(), now);
  const size_t index = static_cast<size_t>(at - places.begin());
  if (*kind == kTrain && at != places.end()) GoBack(parsed, index, now);
  const bool replaces = index < places.size() && places[index] == now;
  if (*kind == kTrain) parsed->modes.emplace_back(TextAt(line, "mode"));
  if (!replaces) places.insert(places.begin() + static_cast<std::ptrdiff_t>(index), now);
  Curves& curves = parsed->run.kinds[kind->get<std::string>()];
  size_t most = kMostOthers;
  for (const Figure& figure : Figures()) {
    if (figure.use == Figure::Use::kRecord) continue;
    curves.try_emplace(std::string(figure.name));
    ++most;
  }
  for (const auto& other : line.items()) {
    if (*kind == kTrain || curves.size() == most) break;
    if (IsFreeName(other.key())) curves.try_emplace(other.key());
  }
  for (auto& [name, values] : curves) {
    const auto value = line.find(name);
    const bool is_number = value != line.end() && value->is_number();
    values.resize(places.size() - (replaces ? 0 : 1), std::nan(""));  // of a name that is new
    const auto to = values.begin() + static_cast<std::ptrdiff_t>(index);
    const double number = is_number ? value->get<double>() : std::nan("");
    if (replaces) {
      *to = number;
    } else {
      values.insert(to, number);
    }
  }
  return true;
}

// Those in which it has trained, in the order in which they came; of a run that has not begun, what
// its job says.
std::string ModeOf(const RunFolder& folder) {
  std::vector<std::string> modes;
  ForEachLine(folder.ViewsFile(), [&](absl::string_view line) {
    const std::string mode(TextAt(ParseJson(line), "mode"));
    if (!mode.empty() && !absl::c_linear_search(modes, mode)) modes.push_back(mode);
  }).IgnoreError();
  if (!modes.empty()) return absl::StrJoin(modes, "; ");
  const absl::StatusOr<proto::Job> job = LoadJob(folder.JobFile(), {}, /*environment=*/{});
  if (!job.ok()) return "";
  return job->consistency().schedule_size() > 0 ? "schedule"
                                                : YamlName(job->consistency().mode().mode());
}

}  // namespace

RunCurves ParseCurves(absl::string_view text) {
  Parsed parsed;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    if (end == absl::string_view::npos) break;
    if (end > 0 && !AddLine(text.substr(0, end), &parsed)) ++parsed.run.skipped;
    text.remove_prefix(end + 1);
  }
  const std::vector<std::string>& modes = parsed.modes;
  for (size_t i = 1; i < modes.size(); ++i) {
    if (modes[i] != modes[i - 1]) parsed.run.switches.emplace_back(i, modes[i]);
  }
  return std::move(parsed.run);
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
  run.mode = ModeOf(RunFolder(folder.string()));
  return run;
}

}  // namespace rubato
