#include "tools/bench/convergence/cost.h"

#include <algorithm>
#include <cstdint>
#include <thread>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "common/base/status.h"
#include "common/job/job.h"
#include "common/pace/quantity.h"
#include "common/space/flat_space.h"
#include "tools/bench/convergence/contention.h"
#include "tools/command/plan.h"

namespace rubato {
namespace {

double ParameterBytes(const Plan& plan) {
  return static_cast<double>(ValueCount(plan.layout) * sizeof(float));
}

}  // namespace

absl::StatusOr<std::string> TimeText(const Study& study, const Calibration& calibration,
                                     size_t cells, size_t jobs) {
  RUBATO_ASSIGN_OR_RETURN(proto::Job job, LoadJob(study.config, study.set));
  RUBATO_ASSIGN_OR_RETURN(const Plan plan, MakePlan(std::move(job)));
  const double micro_batches = static_cast<double>(TotalSamples(plan)) *
                               static_cast<double>(cells) /
                               static_cast<double>(calibration.samples);
  if (study.processes && !study.compute.empty()) {
    RUBATO_ASSIGN_OR_RETURN(const int64_t delay, ParseTime("--compute", study.compute));
    const std::vector<int> workers = WorkersOf(study, plan.job);
    const double most = *absl::c_max_element(workers);
    return absl::StrFormat("# %s of delays at least, one run after the other\n",
                           absl::FormatDuration(absl::Ceil(
                               absl::Nanoseconds(static_cast<double>(delay) * micro_batches / most),
                               absl::Seconds(1))));
  }
  // On arrival each micro-batch is summed and applied. An evaluation computes forward alone, a
  // third of what training computes; where the job has no validation split, a tenth is taken for
  // it.
  constexpr double kChanges = 2, kForward = 1.0 / 3;
  const double changing = kChanges * ParameterBytes(plan) / calibration.change_bytes_per_second;
  const double validation = plan.validation_samples > 0
                                ? static_cast<double>(plan.validation_samples)
                                : 0.1 * static_cast<double>(plan.train_samples);
  const double evaluated = static_cast<double>(study.evaluations) * static_cast<double>(cells) *
                           validation / static_cast<double>(calibration.samples);
  const absl::Duration time =
      absl::Seconds((micro_batches * (calibration.micro_batch_seconds + changing) +
                     kForward * evaluated * calibration.micro_batch_seconds) /
                    static_cast<double>(jobs));
  return absl::StrFormat(
      "# %s of computing on %d cores (%.3g ms for a micro-batch of %d samples)\n",
      absl::FormatDuration(absl::Ceil(time, absl::Seconds(1))), jobs,
      calibration.micro_batch_seconds * 1e3, calibration.samples);
}

absl::Status CheckCores(const Study& study, const Calibration& calibration) {
  RUBATO_ASSIGN_OR_RETURN(proto::Job job, LoadJob(study.config, study.set));
  ProcessLoad load;
  load.servers = job.cluster().servers();
  load.cores = static_cast<int>(std::thread::hardware_concurrency());
  load.computing_seconds = calibration.micro_batch_seconds;
  if (!study.compute.empty()) {
    RUBATO_ASSIGN_OR_RETURN(const int64_t delay, ParseTime("--compute", study.compute));
    load.delay_seconds =
        static_cast<double>(delay) * 1e-9 * *absl::c_min_element(study.compute_scales);
  }
  const double micro_batches = static_cast<double>(job.train().micro_batches());
  const std::vector<int> workers = WorkersOf(study, job);
  RUBATO_ASSIGN_OR_RETURN(const Plan plan, MakePlan(std::move(job)));
  load.changing_seconds = ParameterBytes(plan) / calibration.change_bytes_per_second;
  for (const int count : workers) {
    load.workers = count;
    load.micro_batches = std::max(1.0, micro_batches / count);
    if (const std::string why = Contention(load); !why.empty()) {
      return absl::FailedPreconditionError(absl::StrCat("--processes: ", why));
    }
  }
  return absl::OkStatus();
}

}  // namespace rubato
