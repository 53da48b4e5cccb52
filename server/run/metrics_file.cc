#include "server/run/metrics_file.h"

#include <limits>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/match.h"
#include "common/base/json.h"
#include "common/base/max_count.h"
#include "common/base/status.h"
#include "common/files/run_folder.h"

namespace rubato {

using Json = nlohmann::ordered_json;

namespace {

constexpr char kBack[] = "back";

}  // namespace

absl::StatusOr<MetricsFile> MetricsFile::Create(const std::string& path) {
  RUBATO_ASSIGN_OR_RETURN(RecordFile file, RecordFile::OpenLines(path));
  return MetricsFile(std::move(file));
}

absl::Status MetricsFile::GoBack(int64_t updates) {
  const Json json = {{"kind", kBack}, {"updates", updates}};
  RUBATO_RETURN_IF_ERROR(file_.Append(JsonText(json) + "\n"));
  return file_.Flush();
}

absl::Status MetricsFile::Append(const MetricsLine& line) {
  return file_.Append(ToJson(line) + "\n");
}

std::string ToJson(const MetricsLine& line) {
  Json json;
  json["kind"] = std::string(KindName(line));
  if (line.kind == MetricsLine::Kind::kEval) json["split"] = std::string(line.split);
  if (line.kind == MetricsLine::Kind::kTrain) json["mode"] = line.mode;
  ForEachFigure(line, [&](const Figure& figure, const Figure::Value& value) {
    std::visit([&](auto number) { json[std::string(figure.name)] = number; }, value);
  });
  return JsonText(json);
}

bool IsEvaluation(absl::string_view line) { return absl::StrContains(line, R"("kind":"eval")"); }

absl::StatusOr<std::map<int64_t, double>> WrittenEvaluations(const std::string& path,
                                                             absl::string_view metric) {
  const std::string figure(FigureOf(metric));
  std::map<int64_t, double> evaluations;
  RUBATO_RETURN_IF_ERROR(ForEachLine(path, [&](absl::string_view line) {
    if (!IsEvaluation(line) && !absl::StrContains(line, R"("kind":"back")")) return;
    const auto json = ParseJson(line);
    if (!json.is_object()) return;
    const auto place = [&json](const char* name) { return ClampedCount(NumberAt(json, name)); };
    if (TextAt(json, "kind") == kBack) {
      evaluations.erase(evaluations.upper_bound(place("updates")), evaluations.end());
    } else if (TextAt(json, "kind") == "eval") {
      const auto value = json.find(figure);
      const bool is_told = value != json.end() && value->is_number();
      // Before lines told when it was due, `updates` did, in sync.
      evaluations[place(json.contains("due") ? "due" : "updates")] =
          is_told ? value->get<double>() : std::numeric_limits<double>::quiet_NaN();
    }
  }));
  return evaluations;
}

std::string ToJson(const Summary& summary, const std::string& digest,
                   const std::optional<BestCheckpoint>& best) {
  Json json;
  if (summary.test_accuracy.has_value()) json["test_accuracy"] = *summary.test_accuracy;
  json["test_loss"] = summary.test_loss.value_or(std::numeric_limits<double>::quiet_NaN());
  for (const auto& [name, value] : summary.test_others) json["test_" + name] = value;
  if (summary.validation_accuracy.has_value()) {
    json["validation_accuracy"] = *summary.validation_accuracy;
  }
  if (summary.validation_loss.has_value()) json["validation_loss"] = *summary.validation_loss;
  json["samples_per_second"] = summary.samples_per_second;
  json["seconds"] = summary.seconds;
  json["steps"] = summary.steps;
  json["samples"] = summary.samples;
  if (!summary.stopped.empty()) json["stopped"] = summary.stopped;
  if (!summary.diverged.empty()) json["diverged"] = summary.diverged;
  json["duplicates"] = summary.duplicates;
  json["skipped"] = summary.skipped;
  json["views"] = summary.views;
  json["switches"] = summary.switches;
  json["workers_lost"] = summary.workers_lost;
  json["workers_left"] = summary.workers_left;
  json["servers_lost"] = summary.servers_lost;
  json["samples_rolled_back"] = summary.samples_rolled_back;
  if (summary.residuals_lost.has_value()) json["residuals_lost"] = *summary.residuals_lost;
  json["payload_bytes"] = {{"pushed", summary.pushed_bytes}, {"pulled", summary.pulled_bytes}};
  json["contributions"] = {{"given", summary.work.given},
                           {"applied", summary.work.applied},
                           {"left_out", summary.work.left_out},
                           {"partial", summary.work.partial},
                           {"lost", summary.work.lost}};
  if (summary.overlap.hidden().has_value()) {
    json["waiting_seconds"] = summary.overlap.mean_waiting_seconds();
    json["communication_hidden"] = *summary.overlap.hidden();
  }
  for (const WorkerTime& time : summary.workers) {
    json["workers"].push_back({{"computing_seconds", time.computing},
                               {"sending_seconds", time.sending},
                               {"waiting_seconds", time.waiting}});
  }
  if (!summary.staleness_counts.empty()) json["staleness_counts"] = summary.staleness_counts;
  if (best.has_value()) {
    json["best_checkpoint"] = {
        {"path", best->path}, {"metric", best->metric}, {"value", best->value}};
  }
  json["digest"] = digest;
  Json blocks = Json::array();
  for (const proto::ShardReport::Block& block : summary.blocks) {
    blocks.push_back({{"block", block.block()},
                      {"updates", block.version()},
                      {"samples", block.samples()},
                      {"staleness_sum", block.staleness_sum()},
                      {"staleness_max", block.staleness_max()}});
  }
  json["blocks"] = std::move(blocks);
  return JsonText(json, 2) + "\n";
}

}  // namespace rubato
