// What a process's environment says about a job.
//
//   RUBATO__OPTIMIZER__LEARNING_RATE=0.1    any key: its path in capitals, two underscores for a
//   dot;
//                                           the value is YAML, as in --set
//   WORLD_SIZE=4                            cluster.workers.start
//   MASTER_ADDR=10.0.0.7 MASTER_PORT=29500  cluster.address, either of them or both
//   RANK, JOB_COMPLETION_INDEX, LOCAL_RANK  the rank that a worker asks for; the first that is set
//
// A flag beats RUBATO__..., which beats the others, which beat the file. No other RUBATO_* sets a
// key: clusters inject variables such as RUBATO_PORT=tcp://... for a service called rubato. For the
// same reason a MASTER_PORT that is a URL is ignored. So are empty values of WORLD_SIZE and of the
// variables below it.
#ifndef RUBATO_COMMON_JOB_ENVIRONMENT_H_
#define RUBATO_COMMON_JOB_ENVIRONMENT_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace rubato {

// Variables by name.
using Environment = std::map<std::string, std::string>;

// The environment of this process. If a name occurs twice, the first value counts.
Environment ProcessEnvironment();

// Removes all that is read here from this process's environment, so that processes which it starts
// do not apply it again. No other thread may use the environment meanwhile.
void RemoveJobVariables();

// "RUBATO__OPTIMIZER__LEARNING_RATE" for "optimizer.learning_rate".
std::string VariableOf(absl::string_view key);

// A key that the environment sets.
struct Assignment {
  std::string source;  // the variable, or "MASTER_ADDR and MASTER_PORT"
  std::string key;     // its path
  std::string value;   // YAML
};

// In the order in which they are to be applied: what comes later replaces what came before.
// `address` is what the file says of cluster.address, for the half that no variable gives.
std::vector<Assignment> JobAssignments(const Environment& environment, absl::string_view address);

// The rank that a worker asks for; nullopt if no variable sets it. InvalidArgument, naming the
// variable, if it is not a rank.
absl::StatusOr<std::optional<int>> WorkerRank(const Environment& environment);

// The same for LOCAL_RANK alone: the worker's index among the workers of its host.
absl::StatusOr<std::optional<int>> LocalRank(const Environment& environment);

}  // namespace rubato

#endif  // RUBATO_COMMON_JOB_ENVIRONMENT_H_
