// What the coordinator's core asks its shell to do.
#ifndef RUBATO_SERVER_COORDINATOR_COORDINATOR_ACTION_H_
#define RUBATO_SERVER_COORDINATOR_COORDINATOR_ACTION_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "proto/checkpoint.pb.h"
#include "proto/cluster.pb.h"
#include "server/run/metrics.h"

namespace rubato {

// Names a peer's call. Shard 0 itself is peer 0: what is sent to it stays in the process.
using PeerId = uint64_t;
constexpr PeerId kOwnShard = 0;

struct CoordinatorAction {
  enum class Kind {
    kSend,        // `message` to `peer`
    kLog,         // `text` for people
    kWarn,        // the same, as a warning
    kMetrics,     // `metrics` is complete
    kJournal,     // `message`'s view is about to hold, because of `text`
    kCollect,     // write the final parameters (version `version` of every block in sync), then
                  // OnCollected
    kRestore,     // send the checkpoint's floats to the shards, then it is for them to answer
    kCheckpoint,  // write snapshot `snapshot` as a checkpoint with `manifest`, then OnCheckpointed
    kEnd,         // the job is over with `end`; all peers have been sent Stop
  };
  Kind kind;
  PeerId peer = 0;
  proto::CoordinatorMessage message{};
  std::string text{};
  MetricsLine metrics{};
  int64_t version = 0;
  uint32_t snapshot = 0;
  proto::Manifest manifest{};
  absl::Status end{};
};
using CoordinatorActions = std::vector<CoordinatorAction>;

inline void Send(PeerId peer, proto::CoordinatorMessage message, CoordinatorActions* actions) {
  CoordinatorAction action{CoordinatorAction::Kind::kSend};
  action.peer = peer;
  action.message = std::move(message);
  actions->push_back(std::move(action));
}

// kLog or kWarn.
inline void Say(CoordinatorAction::Kind kind, std::string text, CoordinatorActions* actions) {
  CoordinatorAction action{kind};
  action.text = std::move(text);
  actions->push_back(std::move(action));
}

inline void ReportLine(const MetricsLine& line, CoordinatorActions* actions) {
  CoordinatorAction action{CoordinatorAction::Kind::kMetrics};
  action.metrics = line;
  actions->push_back(std::move(action));
}

inline void SendStop(PeerId peer, proto::Stop stop, CoordinatorActions* actions) {
  proto::CoordinatorMessage message;
  *message.mutable_stop() = std::move(stop);
  Send(peer, std::move(message), actions);
}

}  // namespace rubato

#endif  // RUBATO_SERVER_COORDINATOR_COORDINATOR_ACTION_H_
