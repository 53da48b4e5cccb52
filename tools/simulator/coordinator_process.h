// The simulated process of the coordinator: a thin shell of its core.
#ifndef RUBATO_TOOLS_SIMULATOR_COORDINATOR_PROCESS_H_
#define RUBATO_TOOLS_SIMULATOR_COORDINATOR_PROCESS_H_

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/check.h"
#include "common/base/lease.h"
#include "server/coordinator/coordinator.h"
#include "tools/simulator/network.h"

namespace rubato {

// When simulations begin, so that their times of day are the same each time.
inline absl::Time SimStart() { return absl::UnixEpoch(); }
inline absl::Time ToTime(SimTime time) { return SimStart() + absl::Nanoseconds(time); }
inline SimTime FromTime(absl::Time time) { return absl::ToInt64Nanoseconds(time - SimStart()); }

class CoordinatorProcess : public Process {
 public:
  // What the coordinator asks others to do. Each may be null.
  struct Callbacks {
    std::function<void(const MetricsLine&, absl::Time now)> on_metrics;
    // A line for people; a warning or not.
    std::function<void(bool is_warning, const std::string& text, absl::Time now)> on_text;
    // A view is about to hold.
    std::function<void(const proto::View& view, const std::string& reason, absl::Time now)> on_view;
    std::function<absl::Status(int64_t version, const Summary&)> collect;
    std::function<absl::Status(const std::vector<int>& shards)> restore;
    std::function<absl::Status(const coordinator::SaveValues&)> save_values;
    // These are about to be saved.
    std::function<void(const coordinator::SaveValues&)> before_save;
    std::function<absl::StatusOr<std::string>(uint32_t snapshot, const proto::Manifest&)>
        checkpoint;
    // The training of a term is over, and the job is not.
    std::function<void()> on_ending;
    // The core has refused a peer's message.
    std::function<void(const std::string& what)> on_refused;
    // Stores the state for the next term.
    std::function<void(const proto::Lasting&)> keep;
    // The term has ended because this shard was lost; BeginTerm is to follow.
    std::function<void(int lost_shard, const absl::Status& why)> on_lost_shard;
  };

  // A checkpoint takes so long to write, and a piece of the values that a worker gives.
  CoordinatorProcess(VirtualNetwork* network, Coordinator core, Callbacks callbacks,
                     absl::Duration lease, SimTime checkpoint_time, SimTime piece_time)
      : network_(*network),
        callbacks_(std::move(callbacks)),
        tick_time_(absl::ToInt64Nanoseconds(LeaseTick(lease))),
        checkpoint_time_(checkpoint_time),
        piece_time_(piece_time),
        term_(std::make_unique<Term>(std::move(core), 0)) {}

  // `self` is this process; begins to tick.
  void Start(ProcessId self);
  // The connection of shard 0, which is in the same process.
  void SetOwnShard(ConnectionId connection) { term_->own_shard = connection; }
  // Drops everything of the ended term: its calls break.
  void BeginTerm(Coordinator core);

  void OnMessage(ConnectionId connection, SimMessage&& message) override;
  void OnBroken(ConnectionId connection) override;
  void OnTimer(uint64_t argument) override;

  // A person's request. Returns the answer.
  absl::Status Request(const coordinator::Event& request);
  // Suppresses the coordinator's ticks until then.
  void HoldTicks(SimTime until) { ticks_from_ = std::max(ticks_from_, until); }
  // A heartbeat will arrive at `at`; when it is answered, `on_answer` is called.
  void SendHeartbeat(proto::HeartbeatRequest request, SimTime at, std::function<void()> on_answer) {
    network_.SetTimer(self_, at, kHeartbeat | ++last_beat_ << 8, EventQueue::Kind::kBackground);
    beats_.emplace(last_beat_, Beat{std::move(request), std::move(on_answer)});
  }

  ProcessId self() const { return self_; }
  const Coordinator& core() const { return term_->core; }
  // Whether it is in a term, so that somebody answers.
  bool is_in_term() const { return !term_->is_over; }
  // What the job has ended with.
  const std::optional<absl::Status>& end() const { return end_; }
  SimTime ended_at() const { return ended_at_; }

 private:
  enum Timer : uint64_t { kTick, kTask, kHeartbeat };
  struct Beat {
    proto::HeartbeatRequest request;
    std::function<void()> on_answer;
  };

  // What lives as long as one core.
  struct Term {
    Term(Coordinator core, uint64_t number) : core(std::move(core)), number(number) {}

    Coordinator core;
    const uint64_t number;
    bool is_over = false;
    bool is_ending = false;
    ConnectionId own_shard = -1;
    std::set<ConnectionId> calls;  // of peers that have spoken
    std::deque<std::function<std::optional<coordinator::Event>()>> tasks;
    SimTime tasks_done = 0;
  };

  PeerId PeerOf(ConnectionId connection) const {
    return connection == term_->own_shard ? kOwnShard : static_cast<PeerId>(connection) + 1;
  }
  ConnectionId ConnectionOf(PeerId peer) const {
    return peer == kOwnShard ? term_->own_shard : static_cast<ConnectionId>(peer - 1);
  }
  // Of the term, and of none that follows.
  void SetTimer(Timer timer, SimTime at, EventQueue::Kind kind) {
    network_.SetTimer(self_, at, timer | term_->number << 8, kind);
  }
  void Handle(const coordinator::Event& event);
  // One overload for each outcome.
  void Do(coordinator::Send&& send);
  void Do(const coordinator::Log& log) { Tell(/*is_warning=*/false, log.text); }
  void Do(const coordinator::Warn& warn) { Tell(/*is_warning=*/true, warn.text); }
  void Do(const MetricsLine& line);
  void Do(const coordinator::Journal& journal);
  void Do(const coordinator::Collect& collect);
  void Do(const coordinator::Restore& restore);
  // No simulated worker tells of its data.
  void Do(const coordinator::SaveValues& save);
  void Do(const coordinator::SaveData&) { RUBATO_CHECK(false); }
  void Do(const coordinator::WriteCheckpoint& write);
  void Do(const coordinator::Keep& keep) {
    if (callbacks_.keep) callbacks_.keep(keep.lasting);
  }
  void Do(const coordinator::End& end);
  void Do(const coordinator::Answer& answer) { answer_ = answer.text.status(); }
  void Tell(bool is_warning, const std::string& text);
  // Does it in a separate event after `time`, one task after the other; its result is another
  // event.
  void Later(SimTime time, std::function<std::optional<coordinator::Event>()> task);

  VirtualNetwork& network_;
  const Callbacks callbacks_;
  const SimTime tick_time_;
  const SimTime checkpoint_time_;
  const SimTime piece_time_;
  std::unique_ptr<Term> term_;
  SimTime ticks_from_ = 0;
  ProcessId self_ = 0;
  uint64_t last_beat_ = 0;
  std::map<uint64_t, Beat> beats_;  // on their way
  absl::Status answer_;             // of the event at hand
  std::optional<absl::Status> end_;
  SimTime ended_at_ = 0;
};

}  // namespace rubato

#endif  // RUBATO_TOOLS_SIMULATOR_COORDINATOR_PROCESS_H_
