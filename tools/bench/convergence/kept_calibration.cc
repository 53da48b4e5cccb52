#include "tools/bench/convergence/kept_calibration.h"

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "common/files/run_folder.h"
#include "common/job/job.h"

namespace rubato {

bool NeedsCalibration(const Study& study) {
  if (study.target.is_script) return false;
  return study.processes || study.compute.empty() || study.apply.empty();
}

std::string CalibrationFile(const std::string& folder) { return folder + "/calibration.json"; }

absl::StatusOr<std::optional<Calibration>> KeptCalibration(const std::string& folder) {
  const absl::StatusOr<std::string> text = ReadSmallFile(CalibrationFile(folder));
  if (!text.ok()) return std::nullopt;
  const absl::StatusOr<Calibration> calibration = ParseCalibration(*text);
  if (calibration.ok()) return *calibration;
  return absl::FailedPreconditionError(absl::StrCat(
      CalibrationFile(folder), ": ", calibration.status().message(), "; give another --out"));
}

absl::StatusOr<Calibration> CalibrationOf(const Study& study, const std::string& folder) {
  RUBATO_ASSIGN_OR_RETURN(const std::optional<Calibration> kept, KeptCalibration(folder));
  if (kept.has_value()) return *kept;
  WriteAll(
      2,
      "measuring how long a worker computes and a shard applies on this machine (--compute and "
      "--apply give these times instead)\n");
  RUBATO_ASSIGN_OR_RETURN(const proto::Job job, LoadJob(study.config, study.set));
  return Calibrate(job);
}

absl::Status Keep(const Calibration& calibration, const std::string& folder) {
  return WriteFileAtomically(CalibrationFile(folder), CalibrationJson(calibration) + "\n");
}

void Calibrated(const Calibration& calibration, Study* study) {
  if (study->processes) return;
  if (study->compute.empty()) study->compute = ComputeFlag(calibration);
  if (study->apply.empty()) study->apply = ApplyFlag(calibration);
}

}  // namespace rubato
