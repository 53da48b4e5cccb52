// What enters the coordinator's core (server/coordinator/coordinator.h): one struct for each kind
// of event.
#ifndef RUBATO_SERVER_COORDINATOR_COORDINATOR_EVENT_H_
#define RUBATO_SERVER_COORDINATOR_COORDINATOR_EVENT_H_

#include <cstdint>
#include <string>
#include <variant>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/cluster.pb.h"
#include "proto/mode.pb.h"
#include "server/coordinator/assignments.h"
#include "server/coordinator/coordinator_outcome.h"

namespace rubato::coordinator {

struct FromPeer {
  PeerId peer;
  proto::PeerMessage message;
};

// Its call is broken.
struct PeerGone {
  PeerId peer;
};

// A worker or a shard is alive.
struct Heartbeat {
  proto::HeartbeatRequest request;
};

// From time to time: deadlines pass.
struct Tick {};

// Collect is done, or has failed.
struct Collected {
  absl::Status status;
};

// WriteCheckpoint is done: `path` is the new checkpoint; or has failed, and training goes on.
// NotFound if the run's folder was removed, and with it what was written before.
struct Checkpointed {
  uint32_t snapshot;
  absl::StatusOr<std::string> path;
};

// Writes a checkpoint as soon as possible. Answer: Unavailable if the job is not training.
struct CheckpointRequested {};

// Goes on in another mode as soon as possible, up to the next point of consistency.schedule.
// Answer: a sentence; Unavailable if the job is not training.
struct SwitchRequested {
  proto::Mode mode;
};

// Ends the job cleanly, with a checkpoint. If `end` is an error (a signal), the job ends with it,
// and without testing and collecting the final parameters. A second such event, or one before the
// training, ends it at once.
struct StopRequested {
  absl::Status end;
  std::string reason;
  // Whether the request outlives the term, as one from a person does. A stop that follows from the
  // training itself would follow again.
  bool lasts = true;
};

// The process cannot go on (its own shard): ends the job.
struct Failed {
  absl::Status status;
};

// A stream over which a shard receives its initial values has broken. Has an effect only until the
// training begins.
struct RestoreBroke {
  absl::Status status;
};

// Shards that see this folder write their parts of checkpoints there. Before it, nobody does.
struct PartsFolder {
  std::string path;
};

// What has come of SaveValues.
struct ValuesSaved {
  absl::Status status;
};

using Event =
    std::variant<FromPeer, PeerGone, Heartbeat, Tick, Collected, Checkpointed, CheckpointRequested,
                 SwitchRequested, StopRequested, Failed, RestoreBroke, PartsFolder, ValuesSaved>;

}  // namespace rubato::coordinator

#endif  // RUBATO_SERVER_COORDINATOR_COORDINATOR_EVENT_H_
