// The options of a server process, besides the job.
#ifndef RUBATO_SERVER_PROCESS_SERVER_OPTIONS_H_
#define RUBATO_SERVER_PROCESS_SERVER_OPTIONS_H_

#include <functional>
#include <limits>
#include <string>

#include "absl/time/time.h"
#include "common/job/job.h"
#include "common/wire/connection_options.h"

namespace rubato {

// How long a server that leaves waits for a checkpoint, or for the end of a training that is about
// to end. Kubernetes kills a process some time after SIGTERM (30 s by default).
constexpr absl::Duration kLeavePatience = absl::Seconds(20);
// How long a coordinator stays to tell late processes that the training is over, if some that it
// knows have not been told: replacing a pod takes tens of seconds.
constexpr absl::Duration kTellPatience = absl::Seconds(60);

struct ServerOptions {
  static constexpr int kNoShard = std::numeric_limits<int>::min();
  int shard = kNoShard;
  // Coordinates the job (cluster.dedicated_coordinator) instead of serving a shard.
  bool coordinator = false;
  // Where the process listens, HOST:PORT; port 0 is any free one. The one that coordinates listens
  // at cluster.address unless told otherwise, the others at any free port of the host in it.
  std::string listen;
  // What others are told to connect to; the address that it listens at if empty, which must be one
  // that they reach.
  std::string advertise;
  // Of the one that coordinates: a folder for the run's files, made if need be; a new one under
  // runs/ if empty.
  std::string run_dir;
  // Which keys of the job were not taken from its file, for the run's copy of it.
  Sources sources;
  // Likewise: the value of --resume (common/files/resume_point.h).
  std::string resume;
  // Whether a signal ends only this process, which will be replaced, and not the training (see
  // kLeavePatience).
  bool leaves = false;
  // The folder for recordings of what enters the cores (server/run/recording.h); empty: nothing is
  // recorded.
  std::string record;
  // Called with whether the process takes part in its job: a coordinator does once it listens, a
  // shard once it is in a view, until the term is over.
  std::function<void(bool)> on_ready = [](bool) {};
  // Of all its connections, and of those to it.
  ConnectionOptions connection;
};

}  // namespace rubato

#endif  // RUBATO_SERVER_PROCESS_SERVER_OPTIONS_H_
