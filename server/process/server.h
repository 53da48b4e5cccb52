// The process of one shard; that of shard 0 also coordinates the job and writes the run's folder.
#ifndef RUBATO_SERVER_PROCESS_SERVER_H_
#define RUBATO_SERVER_PROCESS_SERVER_H_

#include <string>

#include "absl/status/status.h"
#include "common/base/process_exit.h"
#include "common/job/job.h"
#include "proto/job.pb.h"

namespace rubato {

struct ServerOptions {
  int shard = 0;
  // Where the data service listens, HOST:PORT; port 0 is any free one. Shard 0 listens at
  // cluster.address unless told otherwise, the others at any free port of loopback.
  std::string listen;
  // What others are told to connect to; the address that it listens at if empty.
  std::string advertise;
  // Shard 0: an existing folder for the run's files; a new one under runs/ if empty.
  std::string run_dir;
  // Which keys of the job were not taken from its file, for the run's copy of it.
  Sources sources;
  // Shard 0: the value of --resume (common/files/resume_point.h).
  std::string resume;
  // The folder to write down in what enters the cores (server/run/recording.h); empty: nothing is.
  std::string record;
};

// Serves until the job is over. FailedPrecondition and the like where repeating cannot help (exit
// code 2); Cancelled after a signal.
absl::Status RunServer(const proto::Job& job, const ServerOptions& options, SignalWatcher* signals);

}  // namespace rubato

#endif  // RUBATO_SERVER_PROCESS_SERVER_H_
