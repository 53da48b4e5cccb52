// Converts a mode as typed, "sync@12%+async", to the YAML of a job. A core.
#ifndef RUBATO_TOOLS_BENCH_CONVERGENCE_MODE_YAML_H_
#define RUBATO_TOOLS_BENCH_CONVERGENCE_MODE_YAML_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/job.pb.h"

namespace rubato {

// For the name of a folder: letters, digits and single hyphens.
std::string Slug(absl::string_view mode);

// `share` of the way to `until`, as YAML; "" where a time decides.
std::string PointAt(const proto::Point& until, double share);

// `consistency` in a job that trains until `until`, as YAML: "sync@12%+async" is a schedule of sync
// for 12 % of the training, then async.
absl::StatusOr<std::string> ConsistencyYaml(absl::string_view mode, const proto::Point& until);

}  // namespace rubato

#endif  // RUBATO_TOOLS_BENCH_CONVERGENCE_MODE_YAML_H_
