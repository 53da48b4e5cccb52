// The outcomes of an event in the coordinator's core, for its shell to carry out: one struct for
// each kind.
#ifndef RUBATO_SERVER_COORDINATOR_COORDINATOR_OUTCOME_H_
#define RUBATO_SERVER_COORDINATOR_COORDINATOR_OUTCOME_H_

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/checkpoint.pb.h"
#include "proto/cluster.pb.h"
#include "proto/run_state.pb.h"
#include "proto/view.pb.h"
#include "server/run/metrics.h"

namespace rubato {

// Names a peer's call. Shard 0 itself is peer 0: what is sent to it stays in the process.
using PeerId = uint64_t;
constexpr PeerId kOwnShard = 0;

namespace coordinator {

struct Send {
  PeerId peer;
  proto::CoordinatorMessage message;
};

// A line for people.
struct Log {
  std::string text;
};

struct Warn {
  std::string text;
};

// The view is about to hold, because of `reason`.
struct Journal {
  proto::View view;
  std::string reason;
  bool goes_back = false;  // the term begins with it, and not with what the shards have kept
};

// Write the final parameters (version `version` of every block in sync), then Collected.
struct Collect {
  int64_t version;
};

// Send the floats that the job begins with to these shards, which answer: the parameters, and of a
// checkpoint so many of the optimizer's slots.
struct Restore {
  std::vector<int> shards;
  int slots = 0;
};

// Keep these values in the run's folder, then ValuesSaved: float32 of the flat vector that the job
// begins with, from value `begin` on (0: anew), to its end if they are the last.
struct SaveValues {
  int64_t begin;
  std::string values;
  bool is_last;
  proto::Layout layout;  // of the vector; with the first only
};

// Keep this in the run's folder.
struct SaveData {
  proto::DataDescription data;
};

// Write the snapshot as a checkpoint, then Checkpointed. All shards but `unseen` have written their
// parts; where one could not, there is nothing to write, and `failure` is what Checkpointed tells.
struct WriteCheckpoint {
  uint32_t snapshot;
  proto::Manifest manifest;
  std::vector<int> unseen;
  absl::Status failure;
};

// State for the next term. Store it before anybody is answered.
struct Keep {
  proto::Lasting lasting;
};

// The job is over, or only the term if a shard was lost; all peers have been sent Stop.
struct End {
  absl::Status status;
  std::optional<int> lost_shard = std::nullopt;
};

// To the person who asked.
struct Answer {
  absl::StatusOr<std::string> text;
};

// MetricsLine: it is complete.
using Outcome = std::variant<Send, Log, Warn, MetricsLine, Journal, Collect, Restore, SaveValues,
                             SaveData, WriteCheckpoint, Keep, End, Answer>;
using Outcomes = std::vector<Outcome>;

inline proto::Stop MakeStop(int exit_code, const std::string& reason) {
  proto::Stop stop;
  stop.set_exit_code(exit_code);
  stop.set_reason(reason);
  return stop;
}

inline proto::Stop MakeRefusal(int exit_code, const std::string& reason) {
  proto::Stop stop = MakeStop(exit_code, reason);
  stop.set_refused(true);
  return stop;
}

inline Send SendStop(PeerId peer, proto::Stop stop) {
  Send send{peer, {}};
  *send.message.mutable_stop() = std::move(stop);
  return send;
}

}  // namespace coordinator
}  // namespace rubato

#endif  // RUBATO_SERVER_COORDINATOR_COORDINATOR_OUTCOME_H_
