// A whole job in virtual time: the same cores as in real processes, in thin wrappers, on a virtual
// network. It is a function of its setting: the same setting gives the same run, to the last bit.
#ifndef RUBATO_TOOLS_SIMULATOR_SIMULATION_H_
#define RUBATO_TOOLS_SIMULATOR_SIMULATION_H_

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/consistency/policy.h"
#include "common/files/checkpoint.h"
#include "common/pace/speeds.h"
#include "common/wire/stream_judge.h"
#include "proto/checkpoint.pb.h"
#include "proto/job.pb.h"
#include "proto/layout.pb.h"
#include "proto/mode.pb.h"
#include "proto/run_state.pb.h"
#include "server/run/last_metrics.h"
#include "tools/simulator/blocks.h"
#include "tools/simulator/coordinator_process.h"
#include "tools/simulator/event_queue.h"
#include "tools/simulator/link.h"
#include "tools/simulator/network.h"
#include "tools/simulator/observer.h"
#include "tools/simulator/real_worker.h"
#include "tools/simulator/shard_process.h"
#include "tools/simulator/symbolic_values.h"
#include "tools/simulator/worker_process.h"
#include "worker/data/load.h"

namespace rubato {

class Simulation;

// How a worker may differ from the others.
enum class Misfit { kJob, kVersion, kData, kLayout };
constexpr int kMisfits = 4;

struct SimulationSetting {
  proto::Job job;
  uint64_t seed = 0;  // of speeds and network; job.seed() is that of the training
  PolicyFactory policies = BuiltInPolicy;
  // What the workers register.
  proto::Layout layout;
  int64_t train_samples = 0;
  int64_t test_samples = 0;
  std::string data_digest = "simulated";

  // The examples: gradients are really computed. Null: symbols stand for them.
  const Data* data = nullptr;
  // What the job goes on from: model.init_from, or `resume` and its floats; with symbols that of
  // each block, and `resume` if there is one.
  std::shared_ptr<const TrainingState> initial;
  std::vector<uint64_t> initial_symbols;
  std::optional<proto::Manifest> resume;
  // With symbols: one message stands for a worker's blocks to one shard.
  bool one_block_for_each_shard = false;

  Speeds speeds;
  SimTime micro_batch_time = 10 * kMillisecond;  // that a worker takes for one by itself
  SimTime test_time = 0;                         // that testing on evaluation.split takes
  SimTime final_test_time = 0;  // and after it, in the end, on the test split if that is another
  SimTime held_back = 0;        // for how long workers hold back what they tell of a step
  SimTime ahead = absl::ToInt64Nanoseconds(WorkerSession::kAhead);
  bool pulls_ahead = false;  // in steps, before a sum leaves
  int64_t values_of_piece = Coordinator::Begin().values_of_piece;
  SimTime checkpoint_time = 0;  // that writing one takes
  VirtualNetwork::Card card;
  std::vector<LinkSetting> links;
  SimTime jitter = 0;
  StreamLimits streams;
  double change_bytes_per_second = 0;  // of a shard's sums and updates; 0: they take no time
  std::vector<Fault> faults;
  VirtualNetwork::OnFault on_fault;
  // By hand, at this many messages.
  struct Switch {
    int64_t at = 0;
    proto::Mode mode;
  };
  std::vector<Switch> switches;
  std::vector<int64_t> checkpoints;  // asked for by hand, at this many messages
  // The job is to stop, so long after this many messages: because of a signal, or asked to.
  struct Stop {
    int64_t at = 0;
    SimTime after = 0;
    bool is_signal = false;
  };
  std::vector<Stop> stops;
  // A worker of this kind registers before all others; nullopt: no such worker. It is gone before
  // the others come, unless the job resumes from a checkpoint, which says more reliably than the
  // first worker what fits.
  std::optional<Misfit> first;
  // Once, while the last of the values that a worker gives are saved, all workers go; and when
  // nobody is left, those of another script come, which has other constants.
  bool script_changes = false;
  // When a signal has ended the job, all its processes are started once more in the same folder.
  bool continues = false;
  // With fewer workers than cluster.workers.min, another is started after so long.
  SimTime replaced_after = kSecond;
  // Whenever the server that coordinates dies, its machine has lost power: what was not flushed to
  // its disk is gone.
  bool power_fails = false;
  // The disk takes some checkpoints not at all, or some parts of them, or never ends to take a
  // part.
  bool disk_is_full = false;
  bool disk_stands_still = false;
  // One more comes each time that the training is over and the job is not.
  bool comes_late = false;
  // Once, the one that tests the end dies when it has told of evaluation.split and not of the rest.
  bool last_tester_dies = false;
  // With symbols: gradients have norms, and one of so many is not finite (symbol.h; 0: none).
  bool symbols_are_judged = false;
  uint64_t non_finite_in = 0;
  // Once the job is over, each process must end within so long after all that holds it up; 0: the
  // simulation ends with the coordinator.
  SimTime ends_within = 0;
  SimTime limit = kNever;  // then the simulation has failed, unless SetLimit says otherwise

  Observer* observer = nullptr;
  std::function<void(const Simulation&)> after_event;
  std::function<void(const Stop& stop)> before_stop;
  // The job has been ended by a signal, and is about to be started again.
  std::function<void()> before_continue;
  // A mode has been asked for by hand, and the coordinator has said that it will hold.
  std::function<void(const proto::Mode& mode)> on_switch;
  // A script's values have been saved, with which the job begins.
  std::function<void(const std::vector<float>& values)> on_initial_values;
  // The files of the run are as they were when the term began, and the last checkpoint is gone.
  std::function<void()> on_power_loss;
  // The job has gone back: a term begins with this, of which nothing has happened yet.
  std::function<void(const proto::RunState& state, const std::optional<proto::Manifest>& resume)>
      on_term;
  CoordinatorProcess::Callbacks callbacks;
};

// State that survives the servers of a simulation, like a run's folder. The simulation has it
// twice: as it is, and as a loss of power leaves it.
struct KeptOnDisk {
  proto::RunState state;
  // What the lines of the term's metrics tell, from the first of training on.
  std::optional<LastMetrics> metrics;
  // The last checkpoint that was written, or what the job began with; with symbols those of the
  // blocks.
  std::optional<proto::Manifest> resume;
  std::vector<uint64_t> symbols;
  // What a worker has given, of a script, to begin with.
  std::optional<std::vector<uint64_t>> initial;
};

class Simulation : private Process {
 public:
  // Errors of the job, the model and the data.
  static absl::StatusOr<std::unique_ptr<Simulation>> Create(SimulationSetting setting);

  // Runs to the end of the job and returns how it ended; Unavailable if its coordinator died.
  // Internal if a core broke a rule, or if there are no more events and the job has not ended: then
  // the message says which process waits for what.
  absl::Status Run();

  // How often its servers were lost.
  int64_t terms_before() const { return kept_.state.term() - 1; }
  // Whether somebody coordinates.
  bool is_in_term() const {
    return network_.alive(coordinator_->self()) && coordinator_->is_in_term();
  }
  // When it ended; and what its coordinator has ended it with, if it has.
  SimTime ended_at() const { return coordinator_->ended_at(); }
  const std::optional<absl::Status>& job_end() const { return coordinator_->end(); }

  const EventQueue& queue() const { return queue_; }
  const VirtualNetwork& network() const { return network_; }
  const Blocks& blocks() const { return blocks_; }
  const Coordinator& coordinator() const { return coordinator_->core(); }
  const std::vector<std::unique_ptr<WorkerProcess>>& workers() const { return workers_; }
  const std::vector<std::unique_ptr<ShardProcess>>& shards() const { return shards_; }
  // The first one of the script that holds.
  size_t first_of_script() const { return first_of_script_; }
  // Workers that do not fit.
  const std::vector<std::unique_ptr<WorkerProcess>>& misfits() const { return misfits_; }
  // The number of the server to which the process belongs (a dedicated coordinator has the number
  // after the shards); below 0: it is not a server's.
  int ServerOf(ProcessId process) const {
    return process == coordinator_->self() ? head() : ShardOf(process);
  }
  // The server that coordinates.
  int head() const { return is_dedicated() ? setting_.job.cluster().servers() : 0; }
  // The number of the shard that the process is; below 0: it is none.
  int ShardOf(ProcessId process) const;
  // Of the machine of a shard.
  int shard_card(int shard) const { return shard; }
  // Of the machine of a worker that has been made.
  int worker_card(int index) const { return worker_cards_[index]; }
  // With symbols.
  const SymbolicValues& SymbolsOf(int shard) const {
    return static_cast<const SymbolicValues&>(shards_[shard]->values());
  }
  uint64_t Value(int64_t block) const;
  // Whether its shard has a view: one that was lost at the very end has none any more.
  bool HasLedger(int64_t block) const;
  const BlockLedger& ledger(int64_t block) const;
  // Of all data streams, if there is an observer.
  const StreamJudge& judge() const { return judge_; }
  uint64_t SnapshotValue(uint32_t snapshot, int64_t block) const {
    return *FindSnapshotValue(snapshot, block);
  }
  // Payloads that wait on a shard for others.
  int64_t HeldPayloads(int shard) const { return SymbolsOf(shard).held(); }
  // With floats: all parameters as they are, or what snapshot `snapshot` holds, with `slots` of the
  // optimizer.
  absl::StatusOr<TrainingState> ReadState(uint32_t snapshot, int slots) const;
  // From now on the simulation fails at this time.
  void SetLimit(SimTime limit) { limit_ = limit; }
  SimTime limit() const { return limit_; }
  // Ends the run with this.
  void Fail(const absl::Status& status) {
    if (failure_.ok()) failure_ = status;
  }
  // Workers that are there and not about to go.
  int WorkersLeft() const;
  // Passes a request of a person or supervisor to the coordinator, now.
  absl::Status Request(const coordinator::Event& request) { return coordinator_->Request(request); }

 private:
  explicit Simulation(SimulationSetting setting, Blocks blocks);
  absl::Status Build();
  // None if the shard does not have it any more.
  std::optional<uint64_t> FindSnapshotValue(uint32_t snapshot, int64_t block) const;
  // What all shards, and all workers, are told alike.
  void SetWhatIsShared(const std::string& digest);
  absl::Status MakeShard(int shard);
  // All processes that are there begin.
  void StartAll();
  // The shards, and the workers from number `first` on.
  void StartFrom(size_t first);
  bool LeavesOut() const {
    return setting_.job.train().on_non_finite() == proto::Train::ON_NON_FINITE_SKIP;
  }
  // `what` has gone wrong; and who waits for what: the coordinator, each shard, each worker.
  absl::Status Waits(const std::string& what) const;
  // Terms (simulation_terms.cc).
  bool is_dedicated() const { return setting_.job.cluster().dedicated_coordinator(); }
  // Whether the shard is apart from the coordinator.
  bool IsApart(int shard) const { return shard > 0 || is_dedicated(); }
  bool comes_back() const { return setting_.job.cluster().max_restarts() > 0; }
  bool is_over() const;
  void StartCoordinator();
  // Of the term that begins, with what has been kept.
  Coordinator MakeCore();
  void OnLostShard(int lost_shard, const absl::Status& why);
  // The coordinator's process begins the next term in place.
  void BeginTerm();
  // Whether the job has ended by a signal, and is to go on.
  bool MayContinue() const;
  // All processes of the job are started once more.
  absl::Status Continue();
  // A server is started that has died.
  void StartServer(int server);
  // The next term is about to begin with `kept_`.
  void CountTerm();
  // The term has begun, and nothing of it has happened.
  void TellOfTerm();
  absl::Status SaveValues(const coordinator::SaveValues& save);
  absl::StatusOr<std::string> WriteCheckpoint(uint32_t snapshot, const proto::Manifest& manifest);

  // As a process, the simulation starts workers and asks them to leave.
  void OnMessage(ConnectionId, SimMessage&&) override {}
  void OnBroken(ConnectionId) override {}
  void OnTimer(uint64_t argument) override;
  // Its later tasks as a process. The argument is the index or number of a worker, or the number of
  // a stop, a kind of misfit or a server.
  enum Task : uint64_t {
    kStartWorker,
    kStartMisfit,
    kFirstGoes,  // the misfit that came before all others
    kLeave,
    kStop,
    kSayStuck,   // of the server that this process is
    kEndServer,  // likewise
    kStartServer,
    kBeginTerm,
    kStartTeller,
    kChangeScript,
    kTesterDies
  };
  void SetTask(Task task, int number, SimTime after);
  void OnFault(const Fault& fault, SimMessage::Kind kind, ProcessId struck);
  void OnWorkerFault(const Fault& fault, size_t number);
  void OnServerFault(const Fault& fault, ProcessId struck);
  // Of the machine of worker `index`, which it may have before it is started.
  int WorkerCard(int index);
  // Worker `index` is made; and takes part.
  absl::Status MakeWorker(int index);
  // `fill` says who `process` is, and whether it says anything.
  std::unique_ptr<HeartbeatProcess> MakeHeartbeat(
      ProcessId process, std::function<bool(proto::HeartbeatRequest*)> fill,
      std::function<void()> on_answer);
  void Start(size_t number);
  absl::StatusOr<std::unique_ptr<WorkerModel>> MakeModel();
  void StartMisfit(Misfit misfit);
  void KillServer(int server);
  // Whatever harmed it.
  void KillWorker(size_t number);
  // All workers go; others come once the coordinator has none.
  void ChangeScript();
  // Does what is asked for by hand at this many messages, and finds at how many the next is.
  void Request();
  // The next event, and what comes of it. A failure that it finds is in failure_.
  void Step(SimTime* idle_since);
  // The coordinator is gone, or is about to be: every other process must end too.
  absl::Status EndAll();
  std::vector<std::string> WhoGoesOn() const;
  // Until all processes have ended, for `patience` from the end of all harm; `what` says why not.
  absl::Status AwaitEnds(const std::string& what, SimTime patience);
  // The job has ended well: likewise, and who comes now, or has not heard it, is told.
  absl::Status TellAll();
  bool has_ended_well() const {
    return coordinator_->end().has_value() && coordinator_->end()->ok();
  }
  // In place of a coordinator that had no time to tell the others.
  void StartTeller();
  // A worker that comes when the job is over.
  absl::Status StartLate();
  void Stop(const SimulationSetting::Stop& stop);
  // Replaces the worker if fewer workers than the minimum are left.
  void Replace(int index);
  VirtualNetwork::Card CardOf(std::optional<int> LinkSetting::*machine, int number) const;
  // Whether shards write and read their parts of checkpoints: only on symbols and with faults,
  // which may strike these messages.
  bool has_parts() const { return setting_.data == nullptr && !setting_.faults.empty(); }
  // Gives the shards the values that the job resumes from.
  absl::Status Restore(const std::vector<int>& shards);
  absl::Status RestoreBlock(int64_t block, size_t slot, const Content& content);
  CoordinatorProcess::Callbacks AllCallbacks();
  WorkerProcess* WorkerOf(ProcessId process) const;

  const SimulationSetting setting_;
  const Blocks blocks_;
  EventQueue queue_;
  VirtualNetwork network_;
  StreamJudge judge_{[this](const absl::Status& status) { Fail(status); }};
  ShardSetting shard_setting_;
  WorkerSetting worker_setting_;
  KeptOnDisk kept_;
  // The state as of when the term's first view held, or of its begin (term.json), and the
  // checkpoint before the last one.
  KeptOnDisk flushed_;
  std::vector<float> given_;  // by a worker, so far
  bool has_changed_script_ = false;
  bool has_lost_tester_ = false;
  size_t first_of_script_ = 0;
  bool is_interrupted_ = false;  // by a signal: nobody starts a server again, nor another term
  bool has_continued_ = false;   // after that
  std::unique_ptr<CoordinatorProcess> coordinator_;
  std::unique_ptr<CoordinatorProcess> teller_;  // of a job that was over when it came
  std::vector<std::unique_ptr<ShardProcess>> shards_;
  std::vector<std::unique_ptr<Process>> dead_;  // in whose places others are
  std::shared_ptr<RealWorker::Floats> floats_;  // of all workers, where there are data
  std::vector<std::unique_ptr<WorkerProcess>> workers_;
  std::array<WorkerSetting, kMisfits> misfit_settings_;
  std::vector<std::unique_ptr<WorkerProcess>> misfits_;
  WorkerSetting late_setting_;
  std::unique_ptr<WorkerProcess> late_;
  std::vector<std::unique_ptr<HeartbeatProcess>> heartbeats_;        // by worker
  std::vector<std::unique_ptr<HeartbeatProcess>> shard_heartbeats_;  // by shard, if it is apart
  std::vector<ProcessId> worker_processes_, heartbeat_processes_;    // by worker
  std::vector<ProcessId> shard_heartbeat_processes_;                 // as shard_heartbeats_
  std::vector<int> worker_cards_;                                    // by index
  ProcessId self_ = 0;
  SimTime limit_;
  size_t next_switch_ = 0;
  size_t next_checkpoint_ = 0;
  size_t next_stop_ = 0;
  int64_t next_request_ = 0;  // the least number of messages at which one of them is due
  absl::Status failure_;
};

}  // namespace rubato

#endif  // RUBATO_TOOLS_SIMULATOR_SIMULATION_H_
