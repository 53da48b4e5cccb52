// The process of a worker: the shell of its session, with threads, streams and floats.
#ifndef RUBATO_WORKER_PROCESS_WORKER_H_
#define RUBATO_WORKER_PROCESS_WORKER_H_

#include <optional>

#include "absl/status/status.h"
#include "common/pace/delays.h"
#include "common/wire/connection_options.h"
#include "proto/job.pb.h"
#include "worker/process/departure.h"
#include "worker/script/script_channel.h"
#include "worker/trainer/trainer_client.h"

namespace rubato {

struct WorkerOptions {
  int rank = -1;                         // the rank it asks for; any free one by default
  int local_rank = 0;                    // which of its host's workers it is: that decides its GPUs
  bool working_gpus = false;             // it does with those of them that work
  ConnectionOptions connection;          // of all its connections
  std::optional<Delays> delays;          // of its computations
  std::optional<TrainerServer> trainer;  // is told how far the training is
};

// Works until the job is over. FailedPrecondition and similar if repeating cannot help (exit code
// 2); Cancelled, or the given reason, after it was asked to leave.
absl::Status RunWorker(const proto::Job& job, const WorkerOptions& options, Departure* departure);

// The same for a script, which computes at the other end of the channel.
absl::Status RunScriptWorker(const proto::Job& job, const WorkerOptions& options,
                             ScriptChannel* channel, Departure* departure);

}  // namespace rubato

#endif  // RUBATO_WORKER_PROCESS_WORKER_H_
