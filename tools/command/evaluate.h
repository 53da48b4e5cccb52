// `rubato eval`: tests the parameters of a run or a checkpoint, in this process.
#ifndef RUBATO_TOOLS_COMMAND_EVALUATE_H_
#define RUBATO_TOOLS_COMMAND_EVALUATE_H_

#include <string>

#include "absl/status/statusor.h"

namespace rubato {

// What was measured, for people or as one JSON object. `path` is a run's folder (its final
// parameters, or else its newest checkpoint) or a checkpoint; `split` is train, validation or test.
// Errors as LoadJob, LoadData, Model::Create; InvalidArgument if the parameters do not fit the
// model.
absl::StatusOr<std::string> EvaluateText(const std::string& path, const std::string& split,
                                         bool json);

}  // namespace rubato

#endif  // RUBATO_TOOLS_COMMAND_EVALUATE_H_
