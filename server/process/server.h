// The process of one shard, or of the coordinator, which writes the run's folder; shard 0's has the
// coordinator in it unless the job has cluster.dedicated_coordinator.
#ifndef RUBATO_SERVER_PROCESS_SERVER_H_
#define RUBATO_SERVER_PROCESS_SERVER_H_

#include "absl/status/status.h"
#include "common/base/process_exit.h"
#include "proto/job.pb.h"
#include "server/process/server_options.h"

namespace rubato {

// Serves until the job is over. FailedPrecondition and the like where repeating cannot help (exit
// code 2); Cancelled after a signal.
absl::Status RunServer(const proto::Job& job, const ServerOptions& options, SignalWatcher* signals);

}  // namespace rubato

#endif  // RUBATO_SERVER_PROCESS_SERVER_H_
