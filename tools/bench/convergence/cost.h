// The cost of a study on this machine.
#ifndef RUBATO_TOOLS_BENCH_CONVERGENCE_COST_H_
#define RUBATO_TOOLS_BENCH_CONVERGENCE_COST_H_

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/bench/convergence/calibration.h"
#include "tools/bench/convergence/study.h"

namespace rubato {

// How long all `cells` together take, `jobs` side by side; a line.
absl::StatusOr<std::string> TimeText(const Study& study, const Calibration& calibration,
                                     size_t cells, size_t jobs);

// FailedPrecondition if real processes of the study would measure contention for cores.
absl::Status CheckCores(const Study& study, const Calibration& calibration);

}  // namespace rubato

#endif  // RUBATO_TOOLS_BENCH_CONVERGENCE_COST_H_
