#include "tools/bench/convergence/study.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/digest.h"
#include "common/base/json.h"
#include "common/base/range.h"
#include "common/base/status.h"
#include "common/files/run_folder.h"
#include "common/job/job.h"
#include "common/pace/quantity.h"
#include "common/pace/speeds.h"
#include "server/run/figures.h"
#include "tools/bench/convergence/mode_yaml.h"
#include "tools/bench/convergence/sign_flip.h"
#include "tools/simulator/timing_model.h"
#include "worker/model/loss.h"

namespace rubato {
namespace {

// Lines of training metrics between two evaluations: from them the training time of an evaluation
// is read.
constexpr int64_t kLinesOfAnEvaluation = 10;

constexpr uintmax_t kMaxScriptBytes = 1 << 20;

// Runs of values whose texts are alike would share a folder.
template <typename T>
absl::Status CheckDistinct(const char* flag, const std::vector<T>& values) {
  std::set<std::string> before;
  for (const T& value : values) {
    if (!before.insert(absl::StrCat(value)).second) {
      return absl::InvalidArgumentError(absl::StrCat(flag, " ", value, " is given twice"));
    }
  }
  return absl::OkStatus();
}

// What each run would be refused for.
absl::Status CheckPace(const Study& study) {
  const auto time = [](const char* flag, const std::string& text) {
    return text.empty() ? absl::OkStatus() : ParseTime(flag, text).status();
  };
  const auto rate = [](const char* flag, const std::string& text) {
    return text.empty() ? absl::OkStatus() : ParseBandwidth(flag, text).status();
  };
  RUBATO_RETURN_IF_ERROR(time("--compute", study.compute));
  RUBATO_RETURN_IF_ERROR(time("--latency", study.latency));
  RUBATO_RETURN_IF_ERROR(rate("--bandwidth", study.bandwidth));
  return rate("--apply", study.apply);
}

// Likewise, of a job that has so many workers if the study does not say it.
absl::Status CheckSpeeds(const Study& study, const std::vector<int>& workers) {
  for (const std::string& text : study.speeds) {
    RUBATO_ASSIGN_OR_RETURN(const Speeds speeds, Speeds::Parse(text, /*seed=*/0));
    for (const int count : workers) RUBATO_RETURN_IF_ERROR(speeds.CheckWorkers(count));
  }
  return absl::OkStatus();
}

absl::Status CheckProcesses(const Study& study) {
  for (const auto& [flag, value] : {std::pair("--latency", &study.latency),
                                    {"--bandwidth", &study.bandwidth},
                                    {"--apply", &study.apply}}) {
    if (!value->empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          flag, ": found ", *value, " with --processes, expected it for simulated runs alone"));
    }
  }
  if (!study.speeds.empty() && study.compute.empty()) {
    return absl::InvalidArgumentError(
        "--speeds: expected --compute as well with --processes, the time that they are a factor "
        "of");
  }
  return absl::OkStatus();
}

absl::Status CheckScriptStudy(const Study& study) {
  if (!study.processes) {
    return absl::InvalidArgumentError(
        "the job's model is a script's, whose gradients cannot be simulated: add --processes, "
        "which trains in real processes of this machine");
  }
  if (!study.learning_rates.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--learning-rates: found ", absl::StrJoin(study.learning_rates, ","),
                     ", expected none: the optimizer is the script's, and its rate with it"));
  }
  if (study.evaluations != kEvaluations) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "--evaluations: found %d, expected none: a script is tested where it calls job.evaluate "
        "and the job's evaluation.every says so",
        study.evaluations));
  }
  return absl::OkStatus();
}

// In one unit, if the job alone tells: an epoch's samples, the script does.
std::optional<double> InSteps(const proto::Point& point, const proto::Job& job) {
  if (point.has_steps()) return static_cast<double>(point.steps());
  if (!point.has_samples()) return std::nullopt;
  return static_cast<double>(point.samples()) / static_cast<double>(job.train().batch_size());
}

// A time to the target is read between two tests, of which the last is at the end.
absl::Status CheckScriptTests(const proto::Job& job) {
  const proto::Point &until = job.train().until(), &every = job.evaluation().every();
  const bool by_epochs = until.has_epochs() && every.has_epochs();
  const std::optional<double> end = by_epochs ? until.epochs() : InSteps(until, job);
  const std::optional<double> between = by_epochs ? every.epochs() : InSteps(every, job);
  if (!end.has_value() || !between.has_value() || *between < *end) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "evaluation.every: a run would be tested at its end alone, expected some tests before, "
      "between which the target is reached; 40 tell the time well");
}

absl::Status CheckStudy(const Study& study) {
  if (study.modes.size() < 2) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "found %d --mode, expected two or more, as --mode sync --mode async", study.modes.size()));
  }
  std::set<std::string> slugs;
  for (const std::string& mode : study.modes) {
    if (!slugs.insert(Slug(mode)).second) {
      return absl::InvalidArgumentError(absl::StrCat("--mode ", mode, " is given twice"));
    }
  }
  if (std::find(study.modes.begin(), study.modes.end(), study.baseline) == study.modes.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--baseline: found ", study.baseline, ", expected one of the modes"));
  }
  if (study.seeds < 1 || study.seeds > kMaxPairs) {
    return absl::InvalidArgumentError(
        absl::StrFormat("--seeds: found %d, expected 1 to %d", study.seeds, kMaxPairs));
  }
  if (study.evaluations < 2 || study.evaluations > 100000) {
    return absl::InvalidArgumentError(
        absl::StrFormat("--evaluations: found %d, expected 2 to 100000", study.evaluations));
  }
  for (const int workers : study.workers) {
    if (workers < 1) {
      return absl::InvalidArgumentError(
          absl::StrFormat("--workers: found %d, expected 1 or more", workers));
    }
  }
  RUBATO_RETURN_IF_ERROR(CheckDistinct("--workers", study.workers));
  if (study.compute_scales.empty() || study.compute_scales[0] != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("--compute-scales: found ", absl::StrJoin(study.compute_scales, ","),
                     ", expected 1 first: the verdict is that of the computing time itself"));
  }
  for (const double scale : study.compute_scales) {
    if (!(scale > 0) || !std::isfinite(scale)) {
      return absl::InvalidArgumentError(
          absl::StrFormat("--compute-scales: found %g, expected numbers above 0", scale));
    }
  }
  RUBATO_RETURN_IF_ERROR(CheckDistinct("--compute-scales", study.compute_scales));
  RUBATO_RETURN_IF_ERROR(CheckDistinct("--speeds", study.speeds));
  RUBATO_RETURN_IF_ERROR(CheckPace(study));
  if (study.target.is_script) RUBATO_RETURN_IF_ERROR(CheckScriptStudy(study));
  if (study.processes) RUBATO_RETURN_IF_ERROR(CheckProcesses(study));
  std::vector<double> rates;
  for (const std::string& rate : study.learning_rates) {
    double& value = rates.emplace_back();
    if (!absl::SimpleAtod(rate, &value) || !(value > 0) || !std::isfinite(value)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--learning-rates: found ", rate, ", expected numbers above 0"));
    }
  }
  return CheckDistinct("--learning-rates", rates);
}

// As of train.stop_when.
constexpr char kAtLeast[] = ",at_least", kAtMost[] = ",at_most";

bool HigherIsBetter(absl::string_view metric) { return metric == "accuracy"; }

bool IsOfScriptsAlone(const Target& target) {
  return target.metric != "accuracy" && target.metric != "loss";
}

}  // namespace

std::vector<int> WorkersOf(const Study& study, const proto::Job& job) {
  return study.workers.empty() ? std::vector<int>{job.cluster().workers().start()} : study.workers;
}

std::string IdleInSync(const Study& study, int workers) {
  const bool has_sync = absl::c_any_of(study.modes, [](const std::string& mode) {
    const std::vector<absl::string_view> parts = absl::StrSplit(mode, '+');
    return absl::c_any_of(parts,
                          [](absl::string_view part) { return absl::StartsWith(part, "sync"); });
  });
  if (!has_sync || study.micro_batches == 0 || workers <= study.micro_batches) return "";
  return absl::StrFormat(
      "%d of %d workers have nothing to compute in sync, since train.micro_batches is %d",
      workers - study.micro_batches, workers, study.micro_batches);
}

absl::StatusOr<Target> ParseTarget(absl::string_view text) {
  const std::pair<std::string, std::string> parts = absl::StrSplit(text, absl::MaxSplits('=', 1));
  absl::string_view metric = parts.first;
  const bool is_least = absl::ConsumeSuffix(&metric, kAtLeast);
  const bool is_most = !is_least && absl::ConsumeSuffix(&metric, kAtMost);
  Target target;
  target.metric = std::string(FigureOf(metric));
  target.higher_is_better = is_least || (!is_most && HigherIsBetter(target.metric));
  if (target.metric.empty() || (!is_least && !is_most && IsOfScriptsAlone(target)) ||
      !absl::SimpleAtod(parts.second, &target.value) || !std::isfinite(target.value) ||
      (target.metric == "accuracy" && (target.value <= 0 || target.value > 1))) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--target: found ", text,
        ", expected eval/accuracy=NUMBER, above 0 and at most 1, eval/loss=NUMBER or, of another "
        "figure of a script's tests, eval/NAME,at_least=NUMBER or eval/NAME,at_most=NUMBER"));
  }
  return target;
}

std::string TargetFlag(const Target& target) {
  const bool is_told =
      IsOfScriptsAlone(target) || target.higher_is_better != HigherIsBetter(target.metric);
  return absl::StrCat("eval/", target.metric,
                      !is_told                  ? ""
                      : target.higher_is_better ? kAtLeast
                                                : kAtMost,
                      "=", target.value);
}

namespace {

// "10ms" times 0.5.
absl::StatusOr<std::string> Scaled(const std::string& compute, double scale) {
  if (scale == 1) return compute;
  RUBATO_ASSIGN_OR_RETURN(const int64_t time, ParseTime("--compute", compute));
  return absl::StrCat(std::max<int64_t>(1, std::llround(static_cast<double>(time) * scale)), "ns");
}

// A refusal of the job, by the flag that sets the key.
absl::Status ByFlag(const absl::Status& refusal, const std::string& mode) {
  const absl::string_view text = refusal.message();
  for (const auto& [key, flag] :
       {std::pair<absl::string_view, std::string>("consistency", absl::StrCat("--mode ", mode)),
        {"cluster.workers", "--workers"},
        {"optimizer.learning_rate", "--learning-rates"}}) {
    absl::string_view said = text;
    if (absl::ConsumePrefix(&said, absl::StrCat("--set ", key, ": "))) {
      return absl::Status(refusal.code(), absl::StrCat(flag, ": ", said));
    }
  }
  return refusal;
}

// The seed of the first trial: behind all that are judged.
constexpr int kFirstTrialSeed = 1000;

// Makes the cells of a study, which it has checked.
class CellMaker {
 public:
  static absl::StatusOr<CellMaker> Create(const Study& study);

  // Numbers of workers, and speeds.
  std::vector<std::pair<int, size_t>> Clusters() const;
  // One for each of `seeds`; `learning_rate` may be empty.
  absl::StatusOr<std::vector<Cell>> Make(int workers, size_t speeds, size_t scale, size_t mode,
                                         std::string learning_rate, Range seeds) const;

 private:
  explicit CellMaker(const Study& study) : study_(study) {}

  const Study& study_;
  proto::Point until_;
  std::vector<int> workers_;
  std::vector<std::string> common_;  // arguments
  std::vector<std::string> set_;
};

absl::StatusOr<CellMaker> CellMaker::Create(const Study& study) {
  RUBATO_RETURN_IF_ERROR(CheckStudy(study));
  RUBATO_ASSIGN_OR_RETURN(const proto::Job job, LoadJob(study.config, study.set));
  CellMaker maker(study);
  maker.until_ = job.train().until();
  if (PointAt(maker.until_, 1).empty()) {
    return absl::InvalidArgumentError(
        "train.until is a time, which modes use differently: expected epochs, steps or samples");
  }
  if (study.target.is_script) {
    RUBATO_RETURN_IF_ERROR(CheckScriptTests(job));
  } else if (IsOfScriptsAlone(study.target)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--target: found ", TargetFlag(study.target),
                     ", expected eval/accuracy or eval/loss: other figures are of scripts' tests"));
  } else if (study.target.metric == "accuracy" && !IsClassification(job.loss().name())) {
    return absl::InvalidArgumentError(
        "--target: found eval/accuracy, expected eval/loss=NUMBER: the job has no classes");
  }
  maker.common_ = {study.processes ? "train" : "simulate", study.config};
  for (const auto& [flag, value] : {std::pair("--latency", &study.latency),
                                    {"--bandwidth", &study.bandwidth},
                                    {"--apply", &study.apply}}) {
    if (!value->empty()) maker.common_.insert(maker.common_.end(), {flag, *value});
  }
  std::vector<std::string>& set = maker.set_ = study.set;
  const double evaluations = static_cast<double>(study.evaluations);
  if (!study.target.is_script) {
    if (!job.data().has_validation()) set.push_back("data.validation=0.1");
    set.push_back("evaluation.split=validation");
    set.push_back(absl::StrCat("evaluation.every=", PointAt(maker.until_, 1 / evaluations)));
  }
  set.push_back(absl::StrCat("metrics.every=",
                             PointAt(maker.until_, 1 / (evaluations * kLinesOfAnEvaluation))));
  set.push_back("metrics.tensorboard=false");
  set.push_back("checkpoint.keep_last=1");
  if (study.processes) set.push_back("cluster.address=127.0.0.1:0");  // others may have the port
  maker.workers_ = WorkersOf(study, job);
  RUBATO_RETURN_IF_ERROR(CheckSpeeds(study, maker.workers_));
  return maker;
}

std::vector<std::pair<int, size_t>> CellMaker::Clusters() const {
  std::vector<std::pair<int, size_t>> clusters;
  for (const int workers : workers_) {
    for (size_t i = 0; i < std::max<size_t>(1, study_.speeds.size()); ++i) {
      clusters.emplace_back(workers, i);
    }
  }
  return clusters;
}

absl::StatusOr<std::vector<Cell>> CellMaker::Make(int workers, size_t speeds, size_t scale,
                                                  size_t mode, std::string learning_rate,
                                                  Range seeds) const {
  RUBATO_ASSIGN_OR_RETURN(const std::string consistency,
                          ConsistencyYaml(study_.modes[mode], until_));
  std::vector<std::string> set = set_;
  set.push_back(absl::StrCat("consistency=", consistency));
  set.push_back(absl::StrCat("cluster.workers=", workers));
  std::string name = absl::StrCat(Slug(study_.modes[mode]), "-w", workers);
  if (speeds > 0) absl::StrAppend(&name, "-speeds", speeds);
  if (scale > 0) absl::StrAppend(&name, "-c", study_.compute_scales[scale]);
  if (!learning_rate.empty()) {
    set.push_back(absl::StrCat("optimizer.learning_rate=", learning_rate));
    absl::StrAppend(&name, "-lr", learning_rate);
  }
  RUBATO_RETURN_IF_ERROR(ByFlag(LoadJob(study_.config, set).status(), study_.modes[mode]));
  std::vector<Cell> cells;
  for (int64_t seed = seeds.begin; seed < seeds.end; ++seed) {
    Cell cell;
    cell.mode = mode;
    cell.workers = workers;
    cell.speeds = speeds;
    cell.seed = static_cast<int>(seed);
    cell.scale = scale;
    cell.learning_rate = learning_rate;
    cell.name = absl::StrCat(name, "-s", seed);
    cell.arguments = common_;
    if (!study_.speeds.empty()) {
      cell.arguments.insert(cell.arguments.end(), {"--speeds", study_.speeds[speeds]});
    }
    if (!study_.compute.empty()) {
      RUBATO_ASSIGN_OR_RETURN(const std::string compute,
                              Scaled(study_.compute, study_.compute_scales[scale]));
      cell.arguments.insert(cell.arguments.end(), {"--compute", compute});
    }
    // Real workers draw by the job's seed.
    if (!study_.processes) {
      cell.arguments.insert(cell.arguments.end(), {"--seed", absl::StrCat(seed)});
    }
    for (const std::string& setting : set) {
      cell.arguments.insert(cell.arguments.end(), {"--set", setting});
    }
    // The same data order, initial parameters and draws of speeds in every mode.
    cell.arguments.insert(cell.arguments.end(), {"--set", absl::StrCat("seed=", seed)});
    cells.push_back(std::move(cell));
  }
  return cells;
}

}  // namespace

absl::StatusOr<std::vector<Cell>> CellsOf(const Study& study, const LearningRates& rates) {
  RUBATO_ASSIGN_OR_RETURN(const CellMaker maker, CellMaker::Create(study));
  std::vector<Cell> cells;
  for (const auto& [workers, speeds] : maker.Clusters()) {
    for (size_t scale = 0; scale < study.compute_scales.size(); ++scale) {
      for (size_t mode = 0; mode < study.modes.size(); ++mode) {
        const auto rate = rates.find({workers, speeds, mode});
        RUBATO_ASSIGN_OR_RETURN(
            std::vector<Cell> of_mode,
            maker.Make(workers, speeds, scale, mode, rate == rates.end() ? "" : rate->second,
                       {0, study.seeds}));
        std::move(of_mode.begin(), of_mode.end(), std::back_inserter(cells));
      }
    }
  }
  return cells;
}

absl::StatusOr<std::vector<Cell>> TrialsOf(const Study& study) {
  RUBATO_ASSIGN_OR_RETURN(const CellMaker maker, CellMaker::Create(study));
  std::vector<Cell> cells;
  for (const auto& [workers, speeds] : maker.Clusters()) {
    for (size_t mode = 0; mode < study.modes.size(); ++mode) {
      for (const std::string& rate : study.learning_rates) {
        RUBATO_ASSIGN_OR_RETURN(std::vector<Cell> of_rate,
                                maker.Make(workers, speeds, /*scale=*/0, mode, rate,
                                           {kFirstTrialSeed, kFirstTrialSeed + kTrialSeeds}));
        for (Cell& cell : of_rate) {
          cell.is_trial = true;
          cells.push_back(std::move(cell));
        }
      }
    }
  }
  return cells;
}

std::string ClusterText(const Study& study, int workers, size_t speeds) {
  const std::string text = absl::StrCat(workers, " workers");
  return study.speeds.size() < 2 ? text : absl::StrCat(text, " at speeds ", study.speeds[speeds]);
}

std::string ClusterColumn(const Study& study, int workers, size_t speeds) {
  const std::string text = absl::StrCat(workers);
  return study.speeds.size() < 2 ? text : absl::StrCat(text, ", ", study.speeds[speeds]);
}

absl::StatusOr<std::string> StudyJson(const Study& study) {
  nlohmann::ordered_json json;
  RUBATO_ASSIGN_OR_RETURN(const proto::Job job, LoadJob(study.config, study.set));
  json["name"] = job.name();
  json["job"] = JobDigest(job);
  json["numerics"] = study.numerics;
  if (!study.processes) json["timing_model"] = kTimingModel;
  for (const std::string& word : job.script()) {
    std::error_code error;
    // Larger ones are programs, such as Python, or data.
    if (!std::filesystem::is_regular_file(word, error) ||
        std::filesystem::file_size(word, error) > kMaxScriptBytes) {
      continue;
    }
    RUBATO_ASSIGN_OR_RETURN(const std::string text, ReadSmallFile(word));
    json["script"].push_back(Sha256Hex(text));
  }
  json["set"] = study.set;
  json["modes"] = study.modes;
  json["baseline"] = study.baseline;
  json["workers"] = study.workers;
  if (!study.learning_rates.empty()) json["learning_rates"] = study.learning_rates;
  json["seeds"] = study.seeds;
  json["target"] = TargetFlag(study.target);
  json["evaluations"] = study.evaluations;
  if (study.processes) json["processes"] = true;
  json["speeds"] = study.speeds;
  for (const std::string& speeds : study.speeds) {
    for (absl::string_view term : absl::StrSplit(speeds, '+')) {
      if (!absl::ConsumePrefix(&term, "trace:")) continue;
      RUBATO_ASSIGN_OR_RETURN(const std::string trace, ReadSmallFile(std::string(term)));
      json["traces"].push_back(Sha256Hex(trace));
    }
  }
  json["compute"] = study.compute;
  json["compute_scales"] = study.compute_scales;
  json["apply"] = study.apply;
  json["latency"] = study.latency;
  json["bandwidth"] = study.bandwidth;
  return JsonText(json, 1);
}

}  // namespace rubato
