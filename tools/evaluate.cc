#include "tools/evaluate.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/checkpoint.h"
#include "common/job/job.h"
#include "common/run_folder.h"
#include "common/status.h"
#include "worker/data/load.h"
#include "worker/micro_batches.h"
#include "worker/model.h"

namespace rubato {
namespace {

constexpr int64_t kBatch = 250;

}  // namespace

absl::StatusOr<std::string> EvaluateText(const std::string& path, const std::string& split,
                                         bool json) {
  if (split != "train" && split != "test") {
    return absl::InvalidArgumentError(
        absl::StrCat("--split: found ", split, ", expected train or test"));
  }
  // A run's final parameters lie beside its job as a checkpoint's do.
  std::string folder = path;
  std::error_code error;
  if (!std::filesystem::exists(RunFolder(path).ParametersFile(), error)) {
    std::vector<std::string> warnings;
    RUBATO_ASSIGN_OR_RETURN(folder, FindCheckpoint(path, &warnings));
  }
  RUBATO_ASSIGN_OR_RETURN(const proto::Job job, LoadJob(RunFolder(folder).JobFile()));
  RUBATO_ASSIGN_OR_RETURN(const Data data, LoadData(job.data()));
  const Dataset& examples = split == "train" ? data.train : data.test;
  const ExampleShape& shape = examples.shape();
  RUBATO_ASSIGN_OR_RETURN(const std::unique_ptr<Model> model,
                          Model::Create(job.model(), {shape.channels, shape.height, shape.width},
                                        data.train.classes(), std::min(kBatch, examples.size())));
  RUBATO_ASSIGN_OR_RETURN(const std::vector<float> parameters,
                          ReadParameters(RunFolder(folder).ParametersFile(), model->layout()));

  BatchReader reader(&examples, job.seed(), model->max_batch());
  BatchResult total;
  for (int64_t begin = 0; begin < examples.size(); begin += model->max_batch()) {
    reader.ReadInOrder({begin, std::min(begin + model->max_batch(), examples.size())});
    const BatchResult result = model->Evaluate(parameters, reader.features(), reader.labels());
    total.loss_sum += result.loss_sum;
    total.correct += result.correct;
    total.samples += result.samples;
  }
  const double loss = total.loss_sum / static_cast<double>(total.samples);
  const double accuracy = static_cast<double>(total.correct) / static_cast<double>(total.samples);
  if (json) {
    nlohmann::ordered_json object;
    object["parameters"] = RunFolder(folder).ParametersFile();
    object["split"] = split;
    object["samples"] = total.samples;
    object["loss"] = loss;
    object["accuracy"] = accuracy;
    return object.dump() + "\n";
  }
  return absl::StrFormat(
      "parameters  %s\nsplit       %s, %d samples\nloss        %.6g\naccuracy    %.2f %%\n",
      RunFolder(folder).ParametersFile(), split, total.samples, loss, 100 * accuracy);
}

}  // namespace rubato
