// The simulated process of one worker: a thin shell of the worker's session.
#ifndef RUBATO_TOOLS_SIMULATOR_WORKER_PROCESS_H_
#define RUBATO_TOOLS_SIMULATOR_WORKER_PROCESS_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/consistency/policy.h"
#include "common/pace/speeds.h"
#include "proto/job.pb.h"
#include "server/coordinator/assignments.h"
#include "tools/simulator/blocks.h"
#include "tools/simulator/network.h"
#include "tools/simulator/observer.h"
#include "tools/simulator/virtual_streams.h"
#include "tools/simulator/worker_model.h"
#include "worker/session/pulled_blocks.h"
#include "worker/session/worker_session.h"

namespace rubato {

class WorkerProcess;

// What all workers of a simulation share; outlives them.
struct WorkerSetting {
  const proto::Job* job = nullptr;
  PolicyFactory policies;
  const Blocks* blocks = nullptr;
  VirtualNetwork* network = nullptr;
  const Speeds* speeds = nullptr;
  SimTime micro_batch_time = 0;  // that a worker takes for a whole micro-batch, by itself
  SimTime test_time = 0;         // as of SimulationSetting, beside its computations
  SimTime final_test_time = 0;
  SimTime held_back = 0;  // for how long it holds back what it tells of a step
  SimTime ahead = 0;      // what it has been given and not begun, on arrival
  bool pulls_ahead = false;
  std::string name;  // of their processes, before a number
  proto::WorkerRegistration registration;
  std::string job_digest;
  std::string version;
  ProcessId coordinator = 0;
  std::vector<ProcessId> shards;
  std::optional<StreamLimits> streams;
  StreamJudge* judge = nullptr;  // may be null
  Observer* observer = nullptr;  // may be null
  // A violation of the protocol, or an error that the simulation cannot continue with.
  std::function<void(const absl::Status&)> on_failure;
  // A worker has ended by itself.
  std::function<void(int index, const absl::Status&)> on_end;
  // It has told a part of what its last test has shown. May be null.
  std::function<void(const WorkerProcess*)> on_half_tested;
};

// Sends the heartbeats of a worker or a shard, like the separate thread of a real one: they
// continue even if the process hangs.
class HeartbeatProcess : public Process {
 public:
  // `beat` is called every HeartbeatInterval.
  HeartbeatProcess(VirtualNetwork* network, SimTime every, std::function<void()> beat)
      : network_(*network), every_(every), beat_(std::move(beat)) {}

  void Start(ProcessId self) {
    self_ = self;
    OnTimer(0);
  }
  void OnMessage(ConnectionId, SimMessage&&) override {}
  void OnBroken(ConnectionId) override {}
  void OnTimer(uint64_t) override {
    beat_();
    network_.SetTimer(self_, network_.now() + every_, 0, EventQueue::Kind::kBackground);
  }

 private:
  VirtualNetwork& network_;
  const SimTime every_;
  const std::function<void()> beat_;
  ProcessId self_ = 0;
};

class WorkerProcess : public Process, private VirtualStreams::Owner {
 public:
  // Worker number `index`, which is the rank that it asks for.
  WorkerProcess(const WorkerSetting* setting, int index, std::unique_ptr<WorkerModel> model);

  // Calls the coordinator. `self` is this process.
  void Start(ProcessId self);
  // It is to go: as SIGTERM.
  void Leave();

  void OnMessage(ConnectionId connection, SimMessage&& message) override;
  void OnBroken(ConnectionId connection) override;
  void OnTimer(uint64_t argument) override;
  void OnSent(ConnectionId connection) override { ends_.OnSent(connection); }
  void OnAcknowledged(ConnectionId connection) override { ends_.OnAcknowledged(connection); }
  // The coordinator has answered its heartbeat.
  void OnHeartbeatAnswered() { heard_at_ = setting_.network->now(); }

  int index() const { return index_; }
  ProcessId self() const { return self_; }
  // Of its registration.
  uint64_t attempt() const { return attempt_; }
  // Who it is in the view, for its heartbeat; {-1, 0}: nobody.
  WorkerId id() const;
  // In which it is that.
  uint32_t term() const;
  // For how long it has been at one thing; 0 while it waits for others.
  SimTime busy() const;
  bool ended() const { return end_.has_value(); }
  // What with, and when.
  const std::optional<absl::Status>& end() const { return end_; }
  SimTime ended_at() const { return ended_at_; }
  bool leaves() const { return asked_to_leave_; }
  // Until when it took part, the last time; kNever: it never did.
  SimTime took_part_until() const { return took_part_until_; }
  SimTime computing_time() const { return computing_time_; }
  int64_t computations() const { return computations_; }
  // What it waits for, for people.
  std::string State() const;

  // Seen from outside the session: since when a stream of the worker has been broken while it had
  // time to react; kNever: no stream is broken.
  SimTime left_alone_since() const;
  // How long it had had no parameters when it gave up; kNever: it has not given up.
  SimTime gave_up_after() const;

 private:
  using Session = WorkerSession;
  enum Timer : uint64_t { kComputed, kTested, kDeadline, kConnect, kLeave, kHeld };

  void SetTimer(Timer timer, SimTime at) {
    setting_.network->SetTimer(self_, at, static_cast<uint64_t>(part_) << 8 | timer);
  }
  // A worker has one thread: an event that arrives while it computes has to wait, but it interrupts
  // a computation that itself waits for parameters.
  void Post(Session::Event event);
  void ReadMail();
  // Gives the session an event and carries out what comes of it.
  void Handle(const Session::Event& event);

  void Run(const Session::Connect& connect);
  void Run(const Session::UseView&) {}
  void Run(const Session::OpenStreams& open);
  void Run(const Session::SendToCoordinator& send);
  void Run(const Session::StartPull& start) { blocks_->Begin(start.pull); }
  void Run(const Session::SendFrame& send);
  void Run(const Session::Test& test);
  void Run(const Session::ReadAhead&) {}
  void Run(const Session::Compute& compute);
  void Run(const Session::GiveValues& give);
  void Run(const Session::Disconnect& disconnect);
  void Run(const Session::End& end);

  void TryToConnect();
  bool comes_back() const { return setting_.job->cluster().max_restarts() > 0; }
  bool Reaches(ProcessId server) const;
  // The coordinator, and where it has taken part before all shards.
  bool ReachesServers() const;
  // As common/wire/reach.h does: why the job is over, if servers stand still.
  absl::Status LookAtServers();
  void TellOfGiven(const proto::Work& work);
  void Tell(proto::PeerMessage message);
  void TellHeld();
  // Of what it takes part in; may be null.
  Observer* observer() const;
  void OnFrame(ConnectionId stream, SimMessage&& message) override;
  void OnGone(ConnectionId stream) override;
  void OnParameters(int shard, const SimMessage& message);
  // Begins to compute on what has arrived, if the session wants it.
  void MaybeBeginEarly();
  // What was begun early comes to nothing, if there is such a thing.
  void Interrupt();
  // All parameters are here.
  void GoOnComputing();
  void FinishCompute();
  void OnTested();
  // Returns the bytes of its payload.
  int64_t Push(const Frame& header, int64_t block, Content content);

  const WorkerSetting& setting_;
  const int index_;
  const std::unique_ptr<WorkerModel> model_;
  ProcessId self_ = 0;
  Session session_;
  absl::Time deadline_ = absl::InfiniteFuture();  // for which a timer is set
  bool asked_to_leave_ = false;
  bool has_diverged_ = false;  // in what it computed last
  std::optional<absl::Status> end_;
  SimTime ended_at_ = 0;
  SimTime took_part_until_ = kNever;
  SimTime had_parameters_at_ = kNever;  // kNever: never
  SimTime heard_at_ = 0;                // the coordinator, by its heartbeat

  // Of one taking part.
  uint32_t part_ = 0;
  uint64_t attempt_ = static_cast<uint64_t>(index_) + 1;
  SimTime connects_until_ = 0;
  bool connects_again_ = false;
  SimTime longest_mute_ = 0;
  uint32_t last_term_ = 0;            // that its registration shows
  SimTime mute_since_ = kNever;       // all servers
  bool servers_stand_still_ = false;  // so it gave up
  ConnectionId control_ = -1;
  std::vector<ConnectionId> streams_;  // by shard; from the view on
  VirtualStreams ends_;                // of these
  SimTime broken_since_ = kNever;      // the first stream that broke
  std::optional<PulledBlocks> blocks_;

  std::optional<Session::Compute> computing_;
  bool began_early_ = false;  // and waits for parameters
  SimTime compute_time_ = 0;  // that computing_ takes
  std::deque<Session::Event> mailbox_;
  std::vector<std::pair<proto::PeerMessage, SimTime>> held_;  // back, since when
  SimTime compute_start_ = 0;
  SimTime computed_at_ = 0;
  SimTime computing_time_ = 0;
  int64_t computations_ = 0;
  std::deque<proto::EvaluationResult> results_;  // of the test in progress
};

}  // namespace rubato

#endif  // RUBATO_TOOLS_SIMULATOR_WORKER_PROCESS_H_
