// Requests a checkpoint from the coordinator, for a server that leaves its job.
#ifndef RUBATO_SERVER_PROCESS_CHECKPOINT_REQUEST_H_
#define RUBATO_SERVER_PROCESS_CHECKPOINT_REQUEST_H_

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/wire/connection_options.h"

namespace rubato {

// Has the coordinator at `address` write a checkpoint, and waits until it is there, at most
// `patience`. Unavailable if the job is not training or nobody answers; PermissionDenied in a job
// without keys, because only a user who may read the run's folder may change such a job.
absl::Status RequestCheckpoint(const std::string& address, const ConnectionOptions& connection,
                               absl::Duration patience);

}  // namespace rubato

#endif  // RUBATO_SERVER_PROCESS_CHECKPOINT_REQUEST_H_
