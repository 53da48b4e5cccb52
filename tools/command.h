// `rubato checkpoint` and `rubato stop`: what a person asks of a running job.
#ifndef RUBATO_TOOLS_COMMAND_H_
#define RUBATO_TOOLS_COMMAND_H_

#include <string>

#include "absl/status/statusor.h"
#include "proto/cluster.pb.h"

namespace rubato {

// Asks shard 0 of the run in folder `run`, or at `address` if that is not empty; returns its
// answer. NotFound if there is no such run, Unavailable if the job does not run any more.
absl::StatusOr<std::string> SendCommand(const std::string& run, const std::string& address,
                                        proto::CommandRequest::Kind kind);

}  // namespace rubato

#endif  // RUBATO_TOOLS_COMMAND_H_
