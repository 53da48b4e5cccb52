#include "tools/bench/convergence/calibration.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/base/json.h"
#include "common/base/kernels.h"
#include "common/base/max_count.h"
#include "common/base/status.h"
#include "common/consistency/policy.h"
#include "common/space/initialize.h"
#include "common/space/sample_schedule.h"
#include "proto/cluster.pb.h"
#include "server/optimizers/optimizer.h"
#include "tensor/tensor.h"
#include "tools/bench/yardsticks.h"
#include "tools/simulator/real_worker.h"
#include "worker/data/load.h"
#include "worker/step/model_values.h"

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

// Bytes a second of a shard's work on `parameters`, a block of the job's after the other.
absl::StatusOr<double> ChangeRate(const proto::Job& job, std::vector<float> parameters) {
  RUBATO_ASSIGN_OR_RETURN(const Optimizer optimizer, Optimizer::Create(ServerOptimizer(job)));
  const size_t values = parameters.size();
  std::vector<float> sum(values, 0), gradient(values, 1e-6f);
  std::vector<std::vector<float>> slots(optimizer.slots().size(), std::vector<float>(values));
  const size_t block = static_cast<size_t>(job.wire().chunk()) / sizeof(float);
  const double seconds = MedianSeconds(0.3, [&] {
    for (size_t begin = 0; begin < values; begin += block) {
      const size_t size = std::min(block, values - begin);
      std::vector<absl::Span<float>> slots_there;
      for (std::vector<float>& slot : slots) {
        slots_there.push_back(absl::MakeSpan(slot).subspan(begin, size));
      }
      const absl::Span<float> there = absl::MakeSpan(parameters).subspan(begin, size);
      const absl::Span<float> sum_there = absl::MakeSpan(sum).subspan(begin, size);
      Add(sum_there.data(), gradient.data() + begin, sum_there.data(), size);
      optimizer.Apply({1e-6f, 1e-2f, 10}, {there, sum_there, slots_there, there});
    }
  });
  constexpr double kChanges = 2;  // a sum and an update
  return kChanges * static_cast<double>(values * sizeof(float)) / seconds;
}

}  // namespace

absl::StatusOr<Calibration> Calibrate(const proto::Job& studied) {
  proto::Job job = Alone(studied);
  job.mutable_consistency()->clear_schedule();
  job.mutable_consistency()->mutable_mode()->set_mode(proto::Mode::NAME_SYNC);
  RUBATO_ASSIGN_OR_RETURN(const Data data, LoadData(job));
  RUBATO_ASSIGN_OR_RETURN(
      const std::unique_ptr<WorkerValues> values,
      ModelValues::Create(job, &data, GpuShare(), [](const proto::EvaluationResult&) {}));
  values->OnJoin().IgnoreError();  // it shares no memory
  values->OnView(proto::View(), /*max_values=*/0);
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
  RUBATO_ASSIGN_OR_RETURN(const double change_rate, ChangeRate(job, parameters));
  return Calibration{seconds, job.train().batch_size() / job.train().micro_batches(), change_rate};
}

std::string ComputeFlag(const Calibration& calibration) {
  return absl::StrCat(std::max<int64_t>(1, std::llround(calibration.micro_batch_seconds * 1e6)),
                      "us");
}

std::string ApplyFlag(const Calibration& calibration) {
  return absl::StrCat(
      std::max<int64_t>(1, std::llround(calibration.change_bytes_per_second * 1e-6)), "MB");
}

std::string CalibrationJson(const Calibration& calibration) {
  nlohmann::ordered_json json;
  json["micro_batch_seconds"] = calibration.micro_batch_seconds;
  json["micro_batch_samples"] = calibration.samples;
  json["change_bytes_per_second"] = calibration.change_bytes_per_second;
  return JsonText(json, 1);
}

absl::StatusOr<Calibration> ParseCalibration(absl::string_view text) {
  const nlohmann::json json = ParseJson(text);
  Calibration calibration;
  for (const auto& [key, value] :
       {std::pair("micro_batch_seconds", &calibration.micro_batch_seconds),
        std::pair("change_bytes_per_second", &calibration.change_bytes_per_second)}) {
    if (json.is_object()) *value = NumberAt(json, key);
    if (!(*value > 0) || !std::isfinite(*value)) {
      return absl::DataLossError(absl::StrCat(key, " is no number above 0"));
    }
  }
  const auto samples = json.find("micro_batch_samples");
  if (samples == json.end() || !samples->is_number() ||
      (calibration.samples = ClampedCount(*samples)) == 0) {
    return absl::DataLossError("micro_batch_samples is no number above 0");
  }
  return calibration;
}

}  // namespace rubato
