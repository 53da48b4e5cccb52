// The simulated process of one worker: a thin shell of the worker's core.
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
#include "proto/job.pb.h"
#include "server/coordinator/assignments.h"
#include "tools/simulator/blocks.h"
#include "tools/simulator/network.h"
#include "tools/simulator/observer.h"
#include "tools/simulator/speeds.h"
#include "tools/simulator/worker_model.h"
#include "worker/process/worker_loop.h"

namespace rubato {

// What all workers of a simulation share; outlives them.
struct WorkerSetting {
  const proto::Job* job = nullptr;
  const Blocks* blocks = nullptr;
  VirtualNetwork* network = nullptr;
  const Speeds* speeds = nullptr;
  SimTime micro_batch_time = 0;  // that a worker takes for a whole micro-batch, by itself
  SimTime test_time = 0;         // for a test of the parameters, beside its computations
  proto::WorkerRegistration registration;
  std::string job_digest;
  std::string version;
  ProcessId coordinator = 0;
  std::vector<ProcessId> shards;
  Observer* observer = nullptr;  // may be null
  // Something that no honest process does, or that the simulation cannot go on with.
  std::function<void(const absl::Status&)> on_failure;
};

// Says that a worker is alive, as the thread of its own that does so in a real one: a worker that
// hangs goes on saying it.
class HeartbeatProcess : public Process {
 public:
  // `beat` is called five times a lease.
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
  ProcessId self() const { return self_; }

 private:
  VirtualNetwork& network_;
  const SimTime every_;
  const std::function<void()> beat_;
  ProcessId self_ = 0;
};

class WorkerProcess : public Process {
 public:
  // Worker number `index`, which is the rank that it asks for.
  WorkerProcess(const WorkerSetting* setting, int index, std::unique_ptr<WorkerModel> model);

  // Calls the coordinator. `self` is this process.
  void Start(ProcessId self);
  // It shall go: as SIGTERM.
  void Leave();

  void OnMessage(ConnectionId connection, SimMessage&& message) override;
  void OnBroken(ConnectionId connection) override;
  void OnTimer(uint64_t argument) override;

  int index() const { return index_; }
  ProcessId self() const { return self_; }
  // Who it is in the view, for its heartbeat; {-1, 0}: nobody.
  WorkerId id() const;
  bool ended() const { return ended_; }
  bool leaves() const { return asked_to_leave_; }
  // How often it has been a member.
  int parts() const { return parts_; }
  SimTime computing_time() const { return computing_time_; }
  int64_t computations() const { return computations_; }
  // What it waits for, for people.
  std::string State() const;

 private:
  enum Timer : uint64_t { kComputed, kTested, kGrace, kJoinAnew, kLeaveNow };
  // What its one thread has to deal with, in order.
  struct Mail {
    enum class Kind { kCoordinator, kControlBroke, kStreamBroke, kLeave, kGraceIsOver };
    Kind kind;
    std::shared_ptr<const proto::CoordinatorMessage> message;
  };

  void Post(Mail::Kind kind) {
    mailbox_.push_back({kind, nullptr});
    ReadMail();
  }
  void SetTimer(Timer timer, SimTime at) {
    setting_.network->SetTimer(self_, at, static_cast<uint64_t>(part_) << 8 | timer);
  }
  // Registers, to take part once.
  void Join();
  // What it took part in is over; it joins anew, or ends.
  void EndPart(bool joins_anew);
  void ReadMail();
  void OnParameters(const SimMessage& message);
  void OnCoordinator(const proto::CoordinatorMessage& message);
  void OnView(const proto::View& view, WorkerLoop::Actions* actions);
  void RunActions(const WorkerLoop::Actions& actions);
  void Run(const WorkerLoop::Pull& pull);
  void Run(const WorkerLoop::RequestWork& request);
  // Beside the computations, one test after the other.
  void Run(const WorkerLoop::Test& action);
  void Run(const WorkerLoop::ReadAhead&) {}
  void Run(const WorkerLoop::Compute& action);
  void Run(const WorkerLoop::SayIdle& idle);
  void Run(const WorkerLoop::Leave& leave);
  // Begins to compute on what has arrived, if the core wants it: as in worker/process/worker.cc.
  void MaybeBeginEarly();
  // What was begun early shall come to nothing, if there is such a thing.
  void Interrupt();
  // All parameters are here.
  void GoOnComputing();
  void FinishCompute();
  void Tell(proto::PeerMessage message);
  int64_t Samples(int64_t unit, Range leaves) const;

  const WorkerSetting& setting_;
  const int index_;
  const std::unique_ptr<WorkerModel> model_;
  ProcessId self_ = 0;
  bool ended_ = false;
  bool asked_to_leave_ = false;
  bool leaving_ = false;
  bool has_taken_part_ = false;  // ever
  int parts_ = 0;

  // Of one taking part.
  uint32_t part_ = 0;
  bool takes_part_ = false;  // else it waits to join anew
  std::optional<WorkerLoop> loop_;
  ConnectionId control_ = -1;
  std::vector<ConnectionId> streams_;  // by shard; from the view on
  bool stream_broke_ = false;

  std::vector<int64_t> versions_;  // by block
  // Of the outstanding pull.
  uint64_t pull_ = 0;
  int64_t pull_clock_ = 0;
  bool passed_ = false;
  std::vector<bool> missing_;  // by block
  int64_t missing_blocks_ = 0;
  int64_t staleness_sum_ = 0;
  int64_t pushed_bytes_ = 0, pulled_bytes_ = 0;  // of payloads, since the last progress
  double staleness_ = 0;

  std::optional<WorkerLoop::Compute> computing_;
  bool began_early_ = false;  // and waits for parameters
  SimTime compute_time_ = 0;  // that computing_ takes
  // What comes meanwhile waits: a worker has one thread.
  std::deque<Mail> mailbox_;
  SimTime compute_start_ = 0;
  SimTime computing_time_ = 0;
  int64_t computations_ = 0;
  bool waits_for_work_ = false;
  std::deque<proto::PeerMessage> tests_;  // whose results are due, in order
  SimTime test_free_ = 0;
};

}  // namespace rubato

#endif  // RUBATO_TOOLS_SIMULATOR_WORKER_PROCESS_H_
