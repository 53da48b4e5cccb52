// What `rubato train --resume` needs of earlier runs.
#ifndef RUBATO_TOOLS_COMMAND_RESUME_H_
#define RUBATO_TOOLS_COMMAND_RESUME_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/log.h"
#include "proto/checkpoint.pb.h"
#include "tools/command/plan.h"

namespace rubato {

// Where a run goes on from.
struct Resume {
  std::string checkpoint;  // empty: from the beginning
  proto::Manifest manifest;
};

// The checkpoint that `resume` (the value of --resume), or else the job, refers to, if any. The job
// is the one in the file `config`, with the overrides `set`; an empty `config` is set to the
// checkpoint's own job.
absl::StatusOr<Resume> FindResume(const std::string& resume, const std::vector<std::string>& set,
                                  std::string* config, const Log& log);

// Lists settings that have changed, and refuses changed shapes.
absl::Status CheckResume(const Plan& plan, const Resume& resume, const Log& log);

// Copies the metrics of the checkpoint's run, up to its step, so that the curves continue there.
// Does nothing if that run has no metrics, or there is no checkpoint.
absl::Status CopyMetrics(const Resume& resume, const std::string& to);

}  // namespace rubato

#endif  // RUBATO_TOOLS_COMMAND_RESUME_H_
