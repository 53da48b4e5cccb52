#include "tools/bench/convergence/study.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/json.h"
#include "common/base/status.h"
#include "common/job/job.h"
#include "tools/bench/convergence/sign_flip.h"

namespace rubato {
namespace {

// Lines of training metrics between two evaluations: from them the training time of an evaluation
// is read.
constexpr int64_t kLinesOfAnEvaluation = 10;

// `share` of the way to `until`, as YAML; "" where a time decides.
std::string PointAt(const proto::Point& until, double share) {
  const auto whole = [share](int64_t count) {
    return std::max<int64_t>(1, std::llround(share * static_cast<double>(count)));
  };
  switch (until.at_case()) {
    case proto::Point::kEpochs:
      return absl::StrFormat("{epochs: %.17g}", share * until.epochs());
    case proto::Point::kSteps:
      return absl::StrCat("{steps: ", whole(until.steps()), "}");
    case proto::Point::kSamples:
      return absl::StrCat("{samples: ", whole(until.samples()), "}");
    default:
      return "";
  }
}

// "bounded,staleness=3" as "mode: bounded, staleness: 3". What it says is the job's to check.
std::string ModeYaml(absl::string_view mode) {
  std::string yaml;
  for (const absl::string_view part : absl::StrSplit(mode, ',')) {
    const std::pair<absl::string_view, absl::string_view> key_value =
        absl::StrSplit(part, absl::MaxSplits('=', 1));
    absl::StrAppend(&yaml, yaml.empty() ? "mode: " : ", ", key_value.first);
    if (absl::StrContains(part, '=')) absl::StrAppend(&yaml, ": ", key_value.second);
  }
  return yaml;
}

// For the name of a folder: letters, digits and single hyphens.
std::string Slug(absl::string_view mode) {
  std::string slug;
  for (const char c : mode) {
    if (absl::ascii_isalnum(static_cast<unsigned char>(c))) {
      slug.push_back(c);
    } else if (!slug.empty() && slug.back() != '-') {
      slug.push_back('-');
    }
  }
  return slug;
}

absl::Status CheckStudy(const Study& study) {
  if (study.modes.size() < 2) {
    return absl::InvalidArgumentError(
        absl::StrFormat("found %d --mode, expected two or more to compare", study.modes.size()));
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
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Target> ParseTarget(absl::string_view text) {
  const std::pair<std::string, std::string> parts = absl::StrSplit(text, absl::MaxSplits('=', 1));
  Target target;
  target.metric = parts.first;
  target.higher_is_better = target.metric == "eval/accuracy";
  if ((!target.higher_is_better && target.metric != "eval/loss") ||
      !absl::SimpleAtod(parts.second, &target.value) || !std::isfinite(target.value)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--target: found ", text, ", expected eval/accuracy=NUMBER or eval/loss=NUMBER"));
  }
  return target;
}

absl::StatusOr<std::string> ConsistencyYaml(absl::string_view mode, const proto::Point& until) {
  const std::vector<absl::string_view> stages = absl::StrSplit(mode, '+');
  if (stages.size() == 1 && !absl::StrContains(mode, '@')) {
    return absl::StrCat("{", ModeYaml(mode), "}");
  }
  std::vector<std::string> yaml;
  double end = 0;
  for (const absl::string_view stage : stages) {
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(stage, absl::MaxSplits('@', 1));
    const bool is_last = stage.data() == stages.back().data();
    if (is_last != !absl::StrContains(stage, '@')) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--mode ", mode,
          ": expected MODE@SHARE% for each stage but the last, such as sync@12%+async"));
    }
    if (is_last) {
      yaml.push_back(absl::StrCat("{", ModeYaml(stage), "}"));
      continue;
    }
    double percent = 0;
    absl::string_view share = parts.second;
    if (!absl::EndsWith(share, "%") ||
        !absl::SimpleAtod(share.substr(0, share.size() - 1), &percent) || !(percent > 0) ||
        !(end + percent < 100)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--mode ", mode, ": found the share ", share,
                       ", expected a part of the training above 0% and, all together, below 100%"));
    }
    end += percent;
    yaml.push_back(
        absl::StrCat("{", ModeYaml(parts.first), ", until: ", PointAt(until, end / 100), "}"));
  }
  return absl::StrCat("{schedule: [", absl::StrJoin(yaml, ", "), "]}");
}

absl::StatusOr<std::vector<Cell>> CellsOf(const Study& study) {
  RUBATO_RETURN_IF_ERROR(CheckStudy(study));
  RUBATO_ASSIGN_OR_RETURN(const proto::Job job, LoadJob(study.config, study.set));
  const proto::Point& until = job.train().until();
  if (PointAt(until, 1).empty()) {
    return absl::InvalidArgumentError(
        "train.until is a time, which modes use differently: expected epochs, steps or samples");
  }
  std::vector<std::string> common = {"simulate", study.config};
  for (const auto& [flag, value] : {std::pair("--speeds", &study.speeds),
                                    {"--compute", &study.compute},
                                    {"--latency", &study.latency},
                                    {"--bandwidth", &study.bandwidth}}) {
    if (!value->empty()) common.insert(common.end(), {flag, *value});
  }
  std::vector<std::string> set = study.set;
  if (!job.data().has_validation()) set.push_back("data.validation=0.1");
  const double evaluations = static_cast<double>(study.evaluations);
  set.push_back("evaluation.split=validation");
  set.push_back(absl::StrCat("evaluation.every=", PointAt(until, 1 / evaluations)));
  set.push_back(
      absl::StrCat("metrics.every=", PointAt(until, 1 / (evaluations * kLinesOfAnEvaluation))));
  set.push_back("metrics.tensorboard=false");
  set.push_back("checkpoint.keep_last=1");
  const std::vector<int> all_workers =
      study.workers.empty() ? std::vector<int>{job.cluster().workers().start()} : study.workers;
  std::vector<Cell> cells;
  for (const int workers : all_workers) {
    for (size_t mode = 0; mode < study.modes.size(); ++mode) {
      RUBATO_ASSIGN_OR_RETURN(const std::string consistency,
                              ConsistencyYaml(study.modes[mode], until));
      std::vector<std::string> of_mode = set;
      of_mode.push_back(absl::StrCat("consistency=", consistency));
      of_mode.push_back(absl::StrCat("cluster.workers=", workers));
      RUBATO_RETURN_IF_ERROR(LoadJob(study.config, of_mode).status());
      for (int seed = 0; seed < study.seeds; ++seed) {
        Cell cell{mode, workers, seed,
                  absl::StrCat(Slug(study.modes[mode]), "-w", workers, "-s", seed), common};
        cell.arguments.insert(cell.arguments.end(), {"--seed", absl::StrCat(seed)});
        for (const std::string& setting : of_mode) {
          cell.arguments.insert(cell.arguments.end(), {"--set", setting});
        }
        // The same data order, initial parameters and draws of speeds in every mode.
        cell.arguments.insert(cell.arguments.end(), {"--set", absl::StrCat("seed=", seed)});
        cells.push_back(std::move(cell));
      }
    }
  }
  return cells;
}

std::string StudyJson(const Study& study) {
  nlohmann::ordered_json json;
  json["config"] = study.config;
  json["set"] = study.set;
  json["modes"] = study.modes;
  json["baseline"] = study.baseline;
  json["workers"] = study.workers;
  json["seeds"] = study.seeds;
  json["target"] = absl::StrCat(study.target.metric, "=", study.target.value);
  json["evaluations"] = study.evaluations;
  json["speeds"] = study.speeds;
  json["compute"] = study.compute;
  json["latency"] = study.latency;
  json["bandwidth"] = study.bandwidth;
  return JsonText(json, 1);
}

}  // namespace rubato
