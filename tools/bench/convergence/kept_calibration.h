// The times that a study's runs are simulated with: measured once, when it begins, and kept in its
// folder.
#ifndef RUBATO_TOOLS_BENCH_CONVERGENCE_KEPT_CALIBRATION_H_
#define RUBATO_TOOLS_BENCH_CONVERGENCE_KEPT_CALIBRATION_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/bench/convergence/calibration.h"
#include "tools/bench/convergence/study.h"

namespace rubato {

// Whether `study` lacks a time. With real processes, the times are needed to check that the cores
// suffice; those of a script cannot be measured before it runs.
bool NeedsCalibration(const Study& study);

std::string CalibrationFile(const std::string& folder);

// That of the study in `folder`, if it has one. FailedPrecondition if it is spoilt.
absl::StatusOr<std::optional<Calibration>> KeptCalibration(const std::string& folder);

// Likewise, or else measured now.
absl::StatusOr<Calibration> CalibrationOf(const Study& study, const std::string& folder);

absl::Status Keep(const Calibration& calibration, const std::string& folder);

// Gives `study` the times that it does not say.
void Calibrated(const Calibration& calibration, Study* study);

}  // namespace rubato

#endif  // RUBATO_TOOLS_BENCH_CONVERGENCE_KEPT_CALIBRATION_H_
