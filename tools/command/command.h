// What a person asks of a running job.
#ifndef RUBATO_TOOLS_COMMAND_COMMAND_H_
#define RUBATO_TOOLS_COMMAND_COMMAND_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "proto/cluster.pb.h"

namespace rubato {

// For what a person asks within a second, for a change, whose answer is worth waiting for, and for
// a checkpoint, which takes its time to be written.
constexpr absl::Duration kAnswerTimeout = absl::Milliseconds(900);
constexpr absl::Duration kChangeTimeout = absl::Seconds(10);
constexpr absl::Duration kCheckpointTimeout = absl::Minutes(10);

// Asks the coordinator of the run in folder `run`, or at `address` if that is not empty; if both
// are, that of runs/latest, or if that is over the newest under runs/ that runs. Returns its
// answer. Shows the token in RUBATO_TOKEN, or that in the run's folder. InvalidArgument if
// `address` is none, NotFound if there is no such run, FailedPrecondition without its token,
// Unavailable if the job does not run any more, DeadlineExceeded if it does not answer; else what
// it says.
absl::StatusOr<proto::CommandReply> SendCommand(const std::string& run, const std::string& address,
                                                proto::CommandRequest request,
                                                absl::Duration timeout);

// "sync", "async" or "bounded,staleness=3", as a request to switch. InvalidArgument if it is
// neither.
absl::StatusOr<proto::CommandRequest> SwitchRequest(absl::string_view mode);

}  // namespace rubato

#endif  // RUBATO_TOOLS_COMMAND_COMMAND_H_
