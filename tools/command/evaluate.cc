#include "tools/command/evaluate.h"

#include <cmath>
#include <cstdio>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/json.h"
#include "common/base/status.h"
#include "common/files/checkpoint_reader.h"
#include "common/files/run_folder.h"
#include "common/job/environment.h"
#include "common/job/is_script.h"
#include "common/job/job.h"
#include "server/run/run_state.h"
#include "tools/command/parameters_file.h"
#include "worker/data/load.h"
#include "worker/model/loss.h"
#include "worker/model/model.h"
#include "worker/step/compute_device.h"
#include "worker/step/evaluator.h"
#include "worker/step/objective.h"

namespace rubato {
namespace {

// As it ran, whatever the environment says of other jobs. Data may lie elsewhere by now.
absl::StatusOr<proto::Job> JobOfRun(const std::string& folder) {
  Environment elsewhere;
  for (const auto& [name, value] : ProcessEnvironment()) {
    if (name == "RUBATO__DATA__PATH" || name == "RUBATO__DATA__TEST_PATH") elsewhere[name] = value;
  }
  return LoadJob(RunFolder(folder).JobFile(), {}, elsewhere);
}

// The digest of the data that the parameters were trained on; empty where nothing tells it.
std::string TrainedOn(const FoundParameters& found) {
  if (found.manifest.has_value()) return found.manifest->data_digest();
  const absl::StatusOr<std::optional<proto::RunState>> state =
      ReadRunState(RunFolder(found.folder));
  return state.ok() && state->has_value() ? (*state)->lasting().data_digest() : "";
}

}  // namespace

absl::StatusOr<std::string> EvaluateText(const std::string& path, const std::string& split,
                                         bool json) {
  if (split != "train" && split != "validation" && split != "test") {
    return absl::InvalidArgumentError(
        absl::StrCat("--split: found ", split, ", expected train, validation or test"));
  }
  // A run's final parameters lie beside its job as a checkpoint's do.
  RUBATO_ASSIGN_OR_RETURN(const FoundParameters found, FindParameters(path));
  const std::string& file = found.file.path();
  RUBATO_ASSIGN_OR_RETURN(const proto::Job job, JobOfRun(found.folder));
  if (IsScript(job)) {
    return absl::FailedPreconditionError(
        "eval cannot test a script's model: load the parameters in your script (job.save, or "
        "`rubato export`)");
  }
  RUBATO_ASSIGN_OR_RETURN(const Data data, LoadData(job));
  if (const std::string before = TrainedOn(found); !before.empty() && before != data.digest) {
    std::fprintf(stderr,
                 "warning: the data are others than those that were trained on (digests %s and "
                 "%s): so are the splits, and what normalize and impute compute\n",
                 data.digest.substr(0, 12).c_str(), before.substr(0, 12).c_str());
  }
  const Dataset& examples = split == "train"        ? data.train
                            : split == "validation" ? data.validation
                                                    : data.test;
  if (examples.size() == 0) {
    return absl::FailedPreconditionError(absl::StrCat("the job's data has no ", split, " split"));
  }
  RUBATO_ASSIGN_OR_RETURN(const Objective objective, ObjectiveOf(job, data));
  RUBATO_ASSIGN_OR_RETURN(
      const std::unique_ptr<Model> model,
      Model::Create(job.model(), examples.shape().dimensions(), objective,
                    EvaluationBatch(examples.size(), ComputeDevice(), examples.size()),
                    DType::kFloat32, Purpose::kEvaluation));
  RUBATO_ASSIGN_OR_RETURN(const std::vector<float> parameters,
                          ReadParameters(found.file, model->layout()));

  const BatchResult total = EvaluateSplit(model.get(), parameters, examples);
  const bool has_accuracy = total.judged > 0;
  // Of targets of which none counts there is none.
  const double loss = total.told == 0 ? std::numeric_limits<double>::quiet_NaN()
                                      : total.loss_sum / (IsClassification(objective.loss)
                                                              ? total.judged
                                                              : static_cast<double>(total.samples));
  const double accuracy = total.correct / total.judged;
  if (json) {
    nlohmann::ordered_json object;
    object["parameters"] = file;
    object["split"] = split;
    object["samples"] = total.samples;
    object["loss"] = loss;
    if (has_accuracy) object["accuracy"] = accuracy;
    return JsonText(object) + "\n";
  }
  std::string text = absl::StrFormat(
      "parameters  %s\nsplit       %s, %d samples\nloss        %s\n", file, split, total.samples,
      total.told == 0 ? "- (no target counts)" : absl::StrFormat("%.6g", loss));
  if (has_accuracy) absl::StrAppendFormat(&text, "accuracy    %.2f %%\n", 100 * accuracy);
  return text;
}

}  // namespace rubato
