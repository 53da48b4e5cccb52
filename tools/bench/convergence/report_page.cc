#include "tools/bench/convergence/report_page.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/json.h"
#include "common/consistency/ledger.h"
#include "tools/bench/convergence/band.h"
#include "tools/bench/convergence/learning_rates.h"
#include "tools/bench/convergence/report.h"
#include "tools/bench/convergence/report_page_assets.h"
#include "tools/bench/convergence/tables.h"
#include "tools/plot/document.h"

namespace rubato {
namespace {

using Json = nlohmann::ordered_json;

// By workers, speeds, scale, mode and seed.
using Names = std::map<std::tuple<int, size_t, size_t, size_t, int>, std::string>;

Json OrNull(std::optional<double> value) {
  return value.has_value() ? Json(RoundedToSee(*value)) : Json();
}

Json RunData(int seed, const CellResult& result) {
  return {{"seed", seed},
          {"reached", result.outcome.reached},
          {"seconds", RoundedToSee(result.outcome.seconds)},
          {"samples", RoundedToSee(result.outcome.samples)},
          {"last", OrNull(result.outcome.last)},
          {"test", OrNull(result.test)},
          {"staleness", OrNull(result.staleness)}};
}

Json BandData(const std::vector<const std::vector<Evaluation>*>& runs,
              double Evaluation::*const axis) {
  std::vector<Curve> curves;
  for (const std::vector<Evaluation>* run : runs) {
    Curve& curve = curves.emplace_back();
    for (const Evaluation& at : *run) curve.emplace_back(at.*axis, at.value);
  }
  const Band band = BandOf(curves);
  const auto rounded = [](const std::vector<double>& values) {
    Json array = Json::array();
    for (const double value : values) array.push_back(RoundedToSee(value));
    return array;
  };
  return {{"x", rounded(band.x)},
          {"low", rounded(band.low)},
          {"middle", rounded(band.middle)},
          {"high", rounded(band.high)}};
}

// Updates of all runs, by staleness.
std::vector<int64_t> StalenessCounts(const std::vector<CellResult>& runs) {
  std::vector<int64_t> counts;
  for (const CellResult& run : runs) {
    counts.resize(std::max(counts.size(), run.staleness_counts.size()));
    for (size_t i = 0; i < run.staleness_counts.size(); ++i) counts[i] += run.staleness_counts[i];
  }
  return counts;
}

// By worker computing, sending and waiting, mean over the runs that tell it.
Json WorkersData(const std::vector<CellResult>& runs) {
  std::vector<std::pair<WorkerTime, int>> sums;  // and of how many runs
  for (const CellResult& run : runs) {
    sums.resize(std::max(sums.size(), run.workers.size()));
    for (size_t i = 0; i < run.workers.size(); ++i) {
      auto& [sum, told] = sums[i];
      sum.computing += run.workers[i].computing;
      sum.sending += run.workers[i].sending;
      sum.waiting += run.workers[i].waiting;
      ++told;
    }
  }
  Json workers = Json::array();
  for (const auto& [sum, told] : sums) {
    workers.push_back({RoundedToSee(sum.computing / told), RoundedToSee(sum.sending / told),
                       RoundedToSee(sum.waiting / told)});
  }
  return workers;
}

Json GroupData(const Study& study, const Group& group, const Names& names,
               const CellCurves& curves) {
  Json modes = Json::array();
  for (size_t mode = 0; mode < group.modes.size(); ++mode) {
    Json runs = Json::array();
    std::vector<const std::vector<Evaluation>*> drawn;
    for (size_t i = 0; i < group.modes[mode].size(); ++i) {
      const int seed = group.seeds[i];
      runs.push_back(RunData(seed, group.modes[mode][i]));
      const auto curve =
          curves.find(names.at({group.workers, group.speeds, group.scale, mode, seed}));
      if (curve != curves.end()) drawn.push_back(&curve->second);
    }
    const Json bands = {{"time", BandData(drawn, &Evaluation::seconds)},
                        {"samples", BandData(drawn, &Evaluation::samples)},
                        {"updates", BandData(drawn, &Evaluation::updates)}};
    modes.push_back({{"runs", std::move(runs)},
                     {"curves", drawn.size()},
                     {"bands", bands},
                     {"stalenessCounts", StalenessCounts(group.modes[mode])},
                     {"workerSeconds", WorkersData(group.modes[mode])}});
  }
  return {{"workers", group.workers},
          {"speeds", group.speeds},
          {"scale", study.compute_scales[group.scale]},
          {"modes", std::move(modes)},
          {"leftOut", group.left_out}};
}

Json RatesData(const RateSearch& search) {
  Json rates = Json::array();
  for (const RateSearch::OfMode& of_mode : search.modes) {
    Json trials = Json::array();
    for (const RateTrials& one : of_mode.rates) {
      trials.push_back(
          {{"runs", one.runs}, {"misses", one.misses}, {"seconds", RoundedToSee(one.seconds)}});
    }
    rates.push_back({{"mode", of_mode.mode},
                     {"workers", of_mode.workers},
                     {"speeds", of_mode.speeds},
                     {"taken", of_mode.taken},
                     {"trials", std::move(trials)}});
  }
  return rates;
}

}  // namespace

std::map<std::string, int> ChartHeights(const Study& study, const std::vector<DoneCell>& cells) {
  constexpr int kLeast = 480, kAround = 240;  // without the rows
  constexpr int kRowOfMode = 60, kRowOfWorker = 17;
  constexpr int kModesAbove = 4, kRowAbove = 18;  // what the names of further modes take above
  constexpr int kMostWorkers = 48;                // of more it shows the mean of each mode
  const int modes = static_cast<int>(study.modes.size());
  const int least = kLeast + kRowAbove * std::max(0, modes - kModesAbove);
  int workers = modes;
  for (const DoneCell& done : cells) {
    const int rows = modes * done.cell.workers;
    if (rows <= kMostWorkers) workers = std::max(workers, rows);
  }
  const int of_modes = std::max(least, kAround + kRowOfMode * modes);
  std::map<std::string, int> heights = {
      {"time-to-target", of_modes}, {"final", of_modes},
      {"staleness", of_modes},      {"curve-time", least},
      {"curve-samples", least},     {"curve-updates", least},
      {"staleness-counts", least},  {"workers", std::max(least, kAround + kRowOfWorker * workers)},
  };
  if (!study.learning_rates.empty()) heights["rates"] = least;
  return heights;
}

std::string ReportPage(const Study& study, const std::vector<DoneCell>& cells,
                       const CellCurves& curves, const std::string& command) {
  Names names;
  for (const auto& [cell, result] : cells) {
    if (!cell.is_trial)
      names[{cell.workers, cell.speeds, cell.scale, cell.mode, cell.seed}] = cell.name;
  }
  const std::vector<Group> groups = GroupsOf(study, cells);
  Json of_groups = Json::array();
  for (const Group& group : groups) of_groups.push_back(GroupData(study, group, names, curves));
  const ReportTable table = TableOf(study, groups);
  const Json data = {
      {"title", ReportTitle(study)},
      {"verdicts", Verdicts(study, cells)},
      {"certainty", Certainty(groups)},
      {"conditions", Conditions(study)},
      {"seconds", study.processes ? "seconds" : "virtual seconds"},
      {"metric", study.target.metric},
      {"target", study.target.value},
      {"modes", study.modes},
      {"speeds", study.speeds},
      {"groups", std::move(of_groups)},
      {"boundNote", BoundNote(study)},
      {"mostStaleness", kMostStaleness},
      {"learningRates", study.learning_rates},
      {"rates", RatesData(SearchRates(study, cells))},
      {"table", {{"titles", table.titles}, {"rows", table.rows}}},
      {"tableNote", TableNote(study)},
      {"how",
       study.target.is_script
           ? absl::StrFormat(
                 "%d seeds; each run is tested where the script calls job.evaluate. One "
                 "with the same seed has the same order of samples, draws of speeds and "
                 "job.seed in every mode. %s",
                 study.seeds, Repeatable(study))
           : absl::StrFormat(
                 "%d seeds; each run is evaluated about %d times on the validation split. One with "
                 "the same seed has the same order of samples, initial parameters and draws of "
                 "speeds in every mode. %s",
                 study.seeds, study.evaluations, Repeatable(study))},
      {"finalNote", study.target.is_script
                        ? "By the script's own test, by which modes are judged."
                        : "Filled: the validation split, by which modes are judged; hollow: the "
                          "test split."},
      {"command", command},
  };
  return Document({"rubato bench convergence", kReportStyle, kReportHtml, kReportScript}, data);
}

}  // namespace rubato
