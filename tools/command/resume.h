// What `rubato train --resume` needs of earlier runs.
#ifndef RUBATO_TOOLS_COMMAND_RESUME_H_
#define RUBATO_TOOLS_COMMAND_RESUME_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace rubato {

// Copies the metrics up to `step` of the run that `checkpoint` belongs to, so that a curve goes on
// where it was. Nothing if that run has none.
absl::Status CopyMetrics(const std::string& checkpoint, int64_t step, const std::string& to);

}  // namespace rubato

#endif  // RUBATO_TOOLS_COMMAND_RESUME_H_
