// Sends a person's commands to a running job.
#ifndef RUBATO_TOOLS_COMMAND_COMMAND_H_
#define RUBATO_TOOLS_COMMAND_COMMAND_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/wire/key.h"
#include "proto/cluster.pb.h"

namespace rubato {

// Timeouts: for a question, answered within a second; for a change, whose answer is worth waiting
// for; and for a checkpoint, which takes time to write.
constexpr absl::Duration kAnswerTimeout = absl::Milliseconds(900);
constexpr absl::Duration kChangeTimeout = absl::Seconds(10);
constexpr absl::Duration kCheckpointTimeout = absl::Minutes(10);

// Sends a request to the coordinator of the run in folder `run`, or at `address` if that is not
// empty. If both are empty, uses runs/latest or, if that run is over, the newest running one under
// runs/. Returns the coordinator's reply. Shows `key`, of the job's secret, or else the token in
// RUBATO_TOKEN, or the one in the run's folder. InvalidArgument if `address` is malformed, NotFound
// if there is no such run, FailedPrecondition without its token, Unavailable if the job is no
// longer running, DeadlineExceeded if it does not answer; else the coordinator's error.
absl::StatusOr<proto::CommandReply> SendCommand(const std::string& run, const std::string& address,
                                                proto::CommandRequest request,
                                                absl::Duration timeout,
                                                const JobKey* key = nullptr);

// "sync", "async" or "bounded,staleness=3", as a request to switch. InvalidArgument if it is
// neither.
absl::StatusOr<proto::CommandRequest> SwitchRequest(absl::string_view mode);

}  // namespace rubato

#endif  // RUBATO_TOOLS_COMMAND_COMMAND_H_
