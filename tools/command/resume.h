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

// The checkpoint that `resume` (as after --resume) or else the job means, if any. The job is that
// of the file `config`, with `set`; an empty `config` becomes the checkpoint's own.
absl::StatusOr<Resume> FindResume(const std::string& resume, const std::vector<std::string>& set,
                                  std::string* config, const Log& log);

// Says which settings are not as they were, and refuses shapes that are not.
absl::Status CheckResume(const Plan& plan, const Resume& resume, const Log& log);

// Copies the metrics of the run that the checkpoint belongs to, up to its step, so that a curve
// goes on where it was. Nothing if that run has none, or there is no checkpoint.
absl::Status CopyMetrics(const Resume& resume, const std::string& to);

}  // namespace rubato

#endif  // RUBATO_TOOLS_COMMAND_RESUME_H_
