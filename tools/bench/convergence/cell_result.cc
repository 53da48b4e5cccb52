#include "tools/bench/convergence/cell_result.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/json.h"
#include "common/base/max_count.h"
#include "common/base/status.h"
#include "common/files/run_folder.h"

namespace rubato {
namespace {

const std::vector<double>* Find(const RunCurves& curves, const std::string& kind,
                                const std::string& name) {
  const auto of_kind = curves.kinds.find(kind);
  if (of_kind == curves.kinds.end()) return nullptr;
  const auto curve = of_kind->second.find(name);
  return curve == of_kind->second.end() || curve->second.empty() ? nullptr : &curve->second;
}

// Seconds, of a run that ended at once: above 0, since times are compared by logarithms.
constexpr double kNoTime = 1e-9;

// The training time at which `samples` were done, by a straight line between two lines of training;
// before the first line from the start, behind the last one the last one's.
double SecondsAt(const std::vector<double>& samples, const std::vector<double>& seconds,
                 double at) {
  const size_t next =
      static_cast<size_t>(std::lower_bound(samples.begin(), samples.end(), at) - samples.begin());
  if (next == samples.size()) return seconds.back();
  const double samples_before = next == 0 ? 0 : samples[next - 1];
  const double seconds_before = next == 0 ? 0 : seconds[next - 1];
  const double share = (at - samples_before) / (samples[next] - samples_before);
  return seconds_before + share * (seconds[next] - seconds_before);
}

std::vector<int64_t> CountsAt(const nlohmann::json& object) {
  std::vector<int64_t> counts;
  const nlohmann::json list = object.value("staleness_counts", nlohmann::json::array());
  for (const nlohmann::json& count : list) {
    counts.push_back(count.is_number() ? ClampedCount(count) : 0);
  }
  return counts;
}

template <typename Number>
nlohmann::ordered_json OrNull(std::optional<Number> value) {
  return value.has_value() ? nlohmann::ordered_json(*value) : nlohmann::ordered_json();
}

}  // namespace

absl::StatusOr<std::vector<Evaluation>> EvaluationsOf(const RunCurves& curves,
                                                      const Target& target) {
  const std::vector<double>* const samples = Find(curves, "train", "samples");
  const std::vector<double>* const seconds = Find(curves, "train", "time");
  std::vector<Evaluation> evaluations;
  const auto add = [&](const char* kind) {
    const std::vector<double>* const at = Find(curves, kind, "samples");
    const std::vector<double>* const values = Find(curves, kind, target.metric);
    if (samples == nullptr || seconds == nullptr || at == nullptr || values == nullptr) return;
    const std::vector<double>* const updates = Find(curves, kind, "updates");
    for (size_t i = 0; i < at->size(); ++i) {
      evaluations.push_back({SecondsAt(*samples, *seconds, (*at)[i]), (*at)[i], (*values)[i],
                             updates == nullptr ? std::nan("") : (*updates)[i]});
    }
  };
  if (target.is_script && samples == nullptr) {
    return absl::FailedPreconditionError(
        "the run has no lines of training, which tell the time: expected that the script calls "
        "job.log(loss=loss) for each micro-batch");
  }
  add("eval");
  if (target.is_script &&
      std::all_of(evaluations.begin(), evaluations.end(), [](const Evaluation& one) {
        return std::isnan(one.value);  // not told
      })) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the run has no eval/", target.metric,
        " before its end: expected that job.evaluate is called where evaluation.every says, and "
        "that its test returns ",
        target.metric));
  }
  if (evaluations.empty()) {
    return absl::FailedPreconditionError(absl::StrCat("the run has no eval/", target.metric));
  }
  const size_t before_end = evaluations.size();
  if (target.is_script) add("test");
  // The last test may tell other figures alone.
  while (evaluations.size() > before_end && std::isnan(evaluations.back().value)) {
    evaluations.pop_back();
  }
  return evaluations;
}

absl::StatusOr<CellResult> ReadCell(const std::string& folder, const Target& target) {
  RUBATO_ASSIGN_OR_RETURN(const std::string text, ReadSmallFile(folder + "/summary.json"));
  const nlohmann::json summary = ParseJson(text);
  if (!summary.is_object()) {
    return absl::FailedPreconditionError(absl::StrCat(folder, "/summary.json is no JSON object"));
  }
  CellResult result;
  result.diverged = TextAt(summary, "diverged");
  result.digest = TextAt(summary, "digest");
  result.end_seconds = NumberAt(summary, "seconds");
  const absl::StatusOr<RunCurves> curves = ReadCurves(folder);
  if (!curves.ok() && result.diverged.empty()) return curves.status();
  absl::StatusOr<std::vector<Evaluation>> evaluations =
      EvaluationsOf(curves.value_or(RunCurves()), target);
  if (result.diverged.empty()) {
    RUBATO_RETURN_IF_ERROR(evaluations.status());
  } else {
    // It may end before its first evaluation.
    if (!evaluations.ok()) evaluations.emplace();
    const Evaluation last = evaluations->empty() ? Evaluation() : evaluations->back();
    evaluations->push_back({std::max({kNoTime, last.seconds, result.end_seconds}),
                            std::max(last.samples, NumberAt(summary, "samples")), std::nan(""),
                            last.updates});
  }
  result.outcome = OutcomeOf(*evaluations, target);
  result.staleness_counts = CountsAt(summary);
  for (const nlohmann::json& worker : summary.value("workers", nlohmann::json::array())) {
    result.workers.push_back({NumberAt(worker, "computing_seconds"),
                              NumberAt(worker, "sending_seconds"),
                              NumberAt(worker, "waiting_seconds")});
  }
  if (!result.diverged.empty()) return result;
  double updates = 0, staleness = 0;
  const nlohmann::json& blocks = summary.value("blocks", nlohmann::json::array());
  for (const nlohmann::json& block : blocks) {
    updates += NumberAt(block, "updates");
    staleness += NumberAt(block, "staleness_sum");
  }
  if (!blocks.empty()) result.updates = ClampedCount(NumberAt(blocks[0], "updates"));
  if (updates > 0) result.staleness = staleness / updates;
  const std::string test = absl::StrCat("test_", target.metric);
  if (!target.is_script && summary.contains(test) && summary[test].is_number())
    result.test = summary[test];
  return result;
}

std::string ResultJson(const CellResult& result) {
  nlohmann::ordered_json json;
  if (!result.error.empty()) {
    json["error"] = result.error;
  } else {
    json["reached"] = result.outcome.reached;
    json["seconds"] = result.outcome.seconds;
    json["samples"] = result.outcome.samples;
    json["best"] = OrNull(result.outcome.best);
    json["last"] = OrNull(result.outcome.last);
    if (result.outcome.at_first) json["at_first"] = true;
    json["test"] = OrNull(result.test);
    json["end_seconds"] = result.end_seconds;
    json["updates"] = OrNull(result.updates);
    json["staleness"] = OrNull(result.staleness);
    if (!result.staleness_counts.empty()) json["staleness_counts"] = result.staleness_counts;
    for (const WorkerTime& worker : result.workers) {
      json["workers"].push_back({worker.computing, worker.sending, worker.waiting});
    }
    json["digest"] = result.digest;
    if (!result.diverged.empty()) json["diverged"] = result.diverged;
  }
  return JsonText(json);
}

absl::StatusOr<CellResult> ParseResult(absl::string_view text) {
  const nlohmann::json json = ParseJson(text);
  CellResult result;
  if (json.is_object() && json.contains("error") && json["error"].is_string()) {
    result.error = json["error"];
    return result;
  }
  for (const char* key : {"seconds", "samples", "end_seconds"}) {
    if (!json.is_object() || !json.contains(key) || !json[key].is_number()) {
      return absl::DataLossError(absl::StrCat("the result of a run has no number ", key));
    }
  }
  const auto optional = [&json](const char* key) {
    return json.contains(key) && json[key].is_number() ? std::optional<double>(json[key])
                                                       : std::nullopt;
  };
  result.outcome = {json["seconds"],  json["samples"],  json.value("reached", false),
                    optional("best"), optional("last"), json.value("at_first", false)};
  result.test = optional("test");
  result.end_seconds = json["end_seconds"];
  if (optional("updates").has_value()) result.updates = ClampedCount(json["updates"]);
  result.staleness = optional("staleness");
  result.staleness_counts = CountsAt(json);
  for (const nlohmann::json& worker : json.value("workers", nlohmann::json::array())) {
    std::array<double, 3> seconds = {};
    for (size_t i = 0; i < std::min(worker.size(), seconds.size()); ++i) {
      if (worker.is_array() && worker[i].is_number()) seconds[i] = worker[i];
    }
    result.workers.push_back({seconds[0], seconds[1], seconds[2]});
  }
  result.digest = TextAt(json, "digest");
  result.diverged = TextAt(json, "diverged");
  return result;
}

}  // namespace rubato
