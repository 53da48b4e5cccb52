#include "tools/bench/convergence/calibration.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/base/json.h"
#include "common/base/max_count.h"
#include "common/base/status.h"
#include "common/consistency/policy.h"
#include "common/space/initialize.h"
#include "common/space/sample_schedule.h"
#include "proto/cluster.pb.h"
#include "tensor/tensor.h"
#include "tools/bench/yardsticks.h"
#include "tools/simulator/real_worker.h"
#include "worker/data/load.h"
#include "worker/step/worker_values.h"

namespace rubato {
namespace {

std::vector<float> InitialParameters(const proto::Layout& layout, uint64_t seed) {
  std::vector<float> parameters;
  for (const proto::Parameter& parameter : layout.parameters()) {
    const int64_t begin = static_cast<int64_t>(parameters.size()), size = SizeOf(parameter.shape());
    parameters.resize(static_cast<size_t>(begin + size));
    InitializeRange(parameter, seed, begin, absl::MakeSpan(parameters).subspan(begin, size));
  }
  return parameters;
}

}  // namespace

absl::StatusOr<Calibration> Calibrate(const proto::Job& studied) {
  proto::Job job = Alone(studied);
  job.mutable_consistency()->clear_schedule();
  job.mutable_consistency()->mutable_mode()->set_mode(proto::Mode::NAME_SYNC);
  RUBATO_ASSIGN_OR_RETURN(const Data data, LoadData(job));
  RUBATO_ASSIGN_OR_RETURN(
      const std::unique_ptr<WorkerValues> values,
      WorkerValues::Create(job, &data, /*local_rank=*/0, [](const proto::EvaluationResult&) {}));
  values->OnJoin().IgnoreError();  // it shares no memory
  values->OnWorkers(/*workers=*/1, /*max_values=*/0);
  const std::vector<float> parameters = InitialParameters(values->layout(), job.seed());
  const SampleSchedule schedule(data.train.size(), job.train().batch_size(),
                                job.train().micro_batches());
  proto::View view;
  *view.mutable_mode() = job.consistency().mode();
  view.set_leaves(schedule.leaves());
  const std::unique_ptr<const Policy> policy = BuiltInPolicy(view);
  absl::Status status;
  const double seconds = MedianSeconds(1, [&] {
    proto::Progress unused;
    status.Update(values->contributions().Compute(
        schedule, /*unit=*/0, {0, 1}, *policy, parameters, [](int64_t, const Payload&) {},
        &unused));
  });
  RUBATO_RETURN_IF_ERROR(status);
  return Calibration{seconds, job.train().batch_size() / job.train().micro_batches()};
}

std::string ComputeFlag(const Calibration& calibration) {
  return absl::StrCat(std::max<int64_t>(1, std::llround(calibration.micro_batch_seconds * 1e6)),
                      "us");
}

std::string CalibrationJson(const Calibration& calibration) {
  nlohmann::ordered_json json;
  json["micro_batch_seconds"] = calibration.micro_batch_seconds;
  json["micro_batch_samples"] = calibration.samples;
  return JsonText(json, 1);
}

absl::StatusOr<Calibration> ParseCalibration(absl::string_view text) {
  const nlohmann::json json =
      nlohmann::json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  Calibration calibration;
  if (!json.is_object() || !json.contains("micro_batch_seconds") ||
      !json["micro_batch_seconds"].is_number() ||
      !((calibration.micro_batch_seconds = json["micro_batch_seconds"]) > 0) ||
      !std::isfinite(calibration.micro_batch_seconds)) {
    return absl::DataLossError("micro_batch_seconds is no number above 0");
  }
  const auto samples = json.find("micro_batch_samples");
  if (samples == json.end() || !samples->is_number() ||
      (calibration.samples = ClampedCount(*samples)) == 0) {
    return absl::DataLossError("micro_batch_samples is no number above 0");
  }
  return calibration;
}

}  // namespace rubato
