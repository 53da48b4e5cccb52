// What faults, supervisors and people do to a simulation, and how its processes end.
#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/status.h"
#include "common/base/version.h"
#include "tools/simulator/simulation.h"

namespace rubato {
namespace {

// The watch over an engine looks twenty times a lease, and is in vain twelve times
// (server/process/engine_watch.h); then the server has a second left for its last words.
constexpr double kWatch = 0.65;  // leases
constexpr SimTime kLastWords = kSecond;

// Beyond the lease, until somebody ends a server that stands still.
constexpr SimTime kMissedAfter = 2 * kSecond;

// That it takes to start a server again that had to be ended.
constexpr SimTime kStartsAfter = 500 * kMillisecond;

// What the coordinator has said in the end arrives before its process is gone, however late.
constexpr SimTime kMessagesLeave = 5 * kSecond;

// How long those that come late are told that the job has ended well
// (server/process/server_options.h).
constexpr SimTime kTellPatience = 60 * kSecond;

// How often one who is to be told something looks whether the coordinator runs.
constexpr SimTime kBetweenTries = 100 * kMillisecond;

}  // namespace

int Simulation::WorkersLeft() const {
  return static_cast<int>(std::count_if(workers_.begin(), workers_.end(), [this](const auto& w) {
    return network_.alive(w->self()) && !w->ended() && !w->leaves();
  }));
}

int Simulation::ShardOf(ProcessId process) const {
  const std::vector<ProcessId>& shards = worker_setting_.shards;
  const auto found = std::find(shards.begin(), shards.end(), process);
  return found == shards.end() ? -1 : static_cast<int>(found - shards.begin());
}

void Simulation::SetTask(Task task, int number, SimTime after) {
  network_.SetTimer(self_, network_.now() + after, task | static_cast<uint64_t>(number) << 8);
}

void Simulation::Replace(int index) {
  if (WorkersLeft() < setting_.job.cluster().workers().min()) {
    SetTask(kStartWorker, index, setting_.replaced_after);
  }
}

void Simulation::OnFault(const Fault& fault, SimMessage::Kind kind, ProcessId struck) {
  if (setting_.on_fault) setting_.on_fault(fault, kind, struck);
  if (fault.kind == Fault::Kind::kJoin) {
    SetTask(kStartWorker, static_cast<int>(worker_cards_.size()), 0);
    return;
  }
  if (fault.kind == Fault::Kind::kMisfit) {
    // Of data and layout who comes first is right: the others must have shown theirs, and one that
    // waits to be refused may come first in the next term.
    // And before the job begins, of a script, the others may go.
    const Coordinator& core = coordinator_->core();
    const bool is_first =
        core.view().number() == 0 || core.Status(ToTime(queue_.now())).members_size() == 0;
    const int misfit = static_cast<int>(fault.at % kMisfits);
    SetTask(kStartMisfit, is_first || comes_back() ? static_cast<int>(Misfit::kVersion) : misfit,
            0);
    return;
  }
  if (fault.kind == Fault::Kind::kLateTicks) {
    coordinator_->HoldTicks(network_.now() + fault.duration);
    return;
  }
  const auto worker = std::find(worker_processes_.begin(), worker_processes_.end(), struck);
  if (worker != worker_processes_.end()) {
    OnWorkerFault(fault, worker - worker_processes_.begin());
  } else if (ServerOf(struck) >= 0) {
    OnServerFault(fault, struck);
  }
}

void Simulation::OnWorkerFault(const Fault& fault, size_t number) {
  const int index = workers_[number]->index();
  switch (fault.kind) {
    case Fault::Kind::kFreeze:
      network_.Freeze(heartbeat_processes_[number], fault.duration);
      break;
    case Fault::Kind::kCrash:
      network_.Crash(heartbeat_processes_[number]);
      Replace(index);
      break;
    case Fault::Kind::kRestart:
      network_.Crash(heartbeat_processes_[number]);
      SetTask(kStartWorker, index, fault.duration);
      break;
    case Fault::Kind::kLeave:
      SetTask(kLeave, static_cast<int>(number), 0);
      break;
    default:
      break;
  }
}

void Simulation::OnServerFault(const Fault& fault, ProcessId struck) {
  const int server = ServerOf(struck);
  switch (fault.kind) {
    case Fault::Kind::kFreeze:
    case Fault::Kind::kFreezeServer:
      // Who starts it again kills it first; some are not watched by anybody.
      if (fault.kind == Fault::Kind::kFreezeServer && comes_back() && fault.at % 2 == 0) {
        const bool is_coordinator = is_dedicated() && server == head();
        SetTask(kEndServer, is_coordinator ? struck : worker_setting_.shards[server],
                static_cast<SimTime>(setting_.job.cluster().lease() * kSecond) + kMissedAfter);
      }
      if (is_dedicated() && server == head()) break;
      if (IsApart(server)) {
        network_.Freeze(shard_heartbeat_processes_[server], fault.duration);
        break;
      }
      for (const ProcessId process : {coordinator_->self(), worker_setting_.shards[0]}) {
        if (process != struck) network_.Freeze(process, fault.duration);
      }
      break;
    case Fault::Kind::kKillServer:
      KillServer(server);
      if (comes_back()) SetTask(kStartServer, server, fault.duration);
      break;
    case Fault::Kind::kStickEngine:
      // Before there is a shard, nobody watches.
      if (shards_[server]->core() == nullptr) break;
      SetTask(kSayStuck, struck,
              static_cast<SimTime>(kWatch * setting_.job.cluster().lease() * kSecond));
      break;
    default:
      break;
  }
}

void Simulation::KillServer(int server) {
  if (server == head()) network_.Crash(coordinator_->self());
  if (server >= static_cast<int>(worker_setting_.shards.size())) return;
  network_.Crash(worker_setting_.shards[server]);
  if (IsApart(server)) network_.Crash(shard_heartbeat_processes_[server]);
}

void Simulation::StartMisfit(Misfit misfit) {
  WorkerSetting& setting = misfit_settings_[static_cast<size_t>(misfit)];
  setting = worker_setting_;
  setting.name = "simulated misfit";
  setting.on_end = [](int, const absl::Status&) {};
  setting.observer = nullptr;
  switch (misfit) {
    case Misfit::kJob:
      setting.job_digest = "of another job";
      break;
    case Misfit::kVersion:
      setting.version = "0.0.0-other";
      break;
    case Misfit::kData:
      setting.registration.set_data_digest("other data");
      break;
    case Misfit::kLayout: {
      proto::Layout* const layout = setting.registration.mutable_layout();
      if (layout->constants_size() > 0) {
        layout->mutable_constants(0)->set_digest("of another script");
      } else {
        layout->mutable_parameters(0)->set_name("another");
      }
      break;
    }
  }
  const int index = static_cast<int>(worker_cards_.size());
  const int card = WorkerCard(index);
  absl::StatusOr<std::unique_ptr<WorkerModel>> model = MakeModel();
  if (!model.ok()) return Fail(model.status());
  misfits_.push_back(std::make_unique<WorkerProcess>(&setting, index, *std::move(model)));
  misfits_.back()->Start(network_.AddProcess(card, misfits_.back().get()));
}

void Simulation::KillWorker(size_t number) {
  if (!network_.alive(worker_processes_[number])) return;
  if (setting_.on_fault) {
    const Fault crash{Fault::Kind::kCrash, network_.sent()};
    setting_.on_fault(crash, SimMessage::Kind::kToCoordinator, worker_processes_[number]);
  }
  network_.Crash(worker_processes_[number]);
  network_.Crash(heartbeat_processes_[number]);
}

void Simulation::ChangeScript() {
  for (size_t number = 0; number < workers_.size(); ++number) KillWorker(number);
  if (coordinator().Status(ToTime(queue_.now())).members_size() > 0) {
    return SetTask(kChangeScript, 0, kBetweenTries);
  }
  if (coordinator().view().number() == 0) {
    first_of_script_ = workers_.size();
    worker_setting_.registration.mutable_layout()->mutable_constants(0)->set_digest("of the next");
  }
  for (int more = setting_.job.cluster().workers().start(); more > 0; --more) {
    SetTask(kStartWorker, static_cast<int>(worker_cards_.size()), 0);
    WorkerCard(static_cast<int>(worker_cards_.size()));
  }
}

void Simulation::OnTimer(uint64_t argument) {
  const int number = static_cast<int>(argument >> 8);
  const Task task = static_cast<Task>(argument & 0xff);
  if (task == kEndServer) {
    const int server = ServerOf(number);
    if (server < 0) return;
    KillServer(server);
    if (comes_back()) SetTask(kStartServer, server, kStartsAfter);
    if (server == head() && has_ended_well()) SetTask(kStartTeller, 0, kStartsAfter);
    return;
  }
  if (task == kStartTeller) return StartTeller();
  if (is_over()) return;
  switch (task) {
    case kStartWorker:
      if (const absl::Status status = MakeWorker(number); !status.ok()) return Fail(status);
      Start(workers_.size() - 1);
      break;
    case kStartMisfit:
      StartMisfit(static_cast<Misfit>(number));
      break;
    case kFirstGoes:
      network_.Crash(misfits_[0]->self());
      break;
    case kStop:
      // A signal that comes between two terms is heeded in the next.
      if (network_.Runs(coordinator_->self()) &&
          (coordinator_->is_in_term() || !setting_.stops[number].is_signal)) {
        Stop(setting_.stops[number]);
      } else {
        SetTask(kStop, number, kBetweenTries);
      }
      break;
    case kSayStuck:
      if (!network_.alive(number)) break;
      // The watch over the engine of a term goes with the term.
      if (shards_[ShardOf(number)]->core() != nullptr) shards_[ShardOf(number)]->SayStuck();
      SetTask(kEndServer, number, kLastWords);
      break;
    case kStartServer:
      StartServer(number);
      break;
    case kBeginTerm:
      BeginTerm();
      break;
    case kChangeScript:
      ChangeScript();
      break;
    case kTesterDies:
      KillWorker(static_cast<size_t>(number));
      Replace(workers_[number]->index());
      break;
    default:
      if (WorkersLeft() <= 1) break;
      workers_[number]->Leave();
      Replace(workers_[number]->index());
  }
}

void Simulation::Stop(const SimulationSetting::Stop& stop) {
  if (setting_.before_stop) setting_.before_stop(stop);
  is_interrupted_ = is_interrupted_ || stop.is_signal;
  Request(coordinator::StopRequested{
              stop.is_signal ? absl::CancelledError("interrupted") : absl::OkStatus(), "asked to"})
      .IgnoreError();
}

void Simulation::Request() {
  if (!network_.Runs(coordinator_->self()) || !coordinator_->is_in_term()) return;
  next_request_ = std::numeric_limits<int64_t>::max();
  const auto is_due = [this](int64_t at) {
    if (at > network_.sent()) next_request_ = std::min(next_request_, at);
    return at <= network_.sent();
  };
  while (next_switch_ < setting_.switches.size() && is_due(setting_.switches[next_switch_].at)) {
    // Refused where the job is not training, or is in that mode.
    const proto::Mode& mode = setting_.switches[next_switch_++].mode;
    const absl::Status status = Request(coordinator::SwitchRequested{mode});
    if (status.ok() && setting_.on_switch) setting_.on_switch(mode);
  }
  while (next_checkpoint_ < setting_.checkpoints.size() &&
         is_due(setting_.checkpoints[next_checkpoint_])) {
    ++next_checkpoint_;
    // Refused where the job is not training.
    Request(coordinator::CheckpointRequested{}).IgnoreError();
  }
  while (next_stop_ < setting_.stops.size() && is_due(setting_.stops[next_stop_].at)) {
    SetTask(kStop, static_cast<int>(next_stop_), setting_.stops[next_stop_].after);
    ++next_stop_;
  }
}

std::vector<std::string> Simulation::WhoGoesOn() const {
  std::vector<std::string> who;
  for (size_t shard = 0; shard < shards_.size(); ++shard) {
    if (has_ended_well() && !IsApart(static_cast<int>(shard))) continue;  // ends with its process
    if (network_.alive(worker_setting_.shards[shard]) && !shards_[shard]->end().has_value()) {
      who.push_back(absl::StrFormat("shard %d %s", shard, shards_[shard]->State()));
    }
  }
  for (const auto* workers : {&workers_, &misfits_}) {
    for (const auto& worker : *workers) {
      if (network_.alive(worker->self()) && !worker->ended()) {
        who.push_back(absl::StrFormat("worker %d %s", worker->index(), worker->State()));
      }
    }
  }
  if (late_ != nullptr && !late_->ended()) {
    who.push_back(absl::StrCat("the worker that has come late ", late_->State()));
  }
  return who;
}

void Simulation::StartTeller() {
  if (teller_ != nullptr) return;
  Coordinator::Begin begin;
  begin.is_over = true;
  teller_ = std::make_unique<CoordinatorProcess>(
      &network_,
      Coordinator(setting_.job, kept_.state.job_digest(), kVersion, begin, ToTime(queue_.now())),
      CoordinatorProcess::Callbacks(), absl::Seconds(setting_.job.cluster().lease()), 0, 0);
  const ProcessId process = network_.AddProcess(shard_card(head()), teller_.get());
  shard_setting_.coordinator = worker_setting_.coordinator = late_setting_.coordinator = process;
  for (WorkerSetting& misfit : misfit_settings_) misfit.coordinator = process;
  teller_->Start(process);
}

absl::Status Simulation::StartLate() {
  late_setting_ = worker_setting_;
  late_setting_.name = "simulated late-comer";
  late_setting_.on_end = [](int, const absl::Status&) {};
  late_setting_.observer = nullptr;
  RUBATO_ASSIGN_OR_RETURN(std::unique_ptr<WorkerModel> model, MakeModel());
  const int index = static_cast<int>(worker_cards_.size());
  const int card = WorkerCard(index);
  late_ = std::make_unique<WorkerProcess>(&late_setting_, index, std::move(model));
  late_->Start(network_.AddProcess(card, late_.get()));
  return absl::OkStatus();
}

absl::Status Simulation::TellAll() {
  network_.SetFaults({});
  std::vector<const WorkerProcess*> untold;
  for (const auto& worker : workers_) {
    if (!worker->ended() && !worker->leaves()) untold.push_back(worker.get());
  }
  // Every second time the coordinator dies before anybody has heard it.
  if (network_.sent() % 2 == 0) KillServer(head());
  if (!network_.alive(coordinator_->self())) SetTask(kStartTeller, 0, kStartsAfter);
  RUBATO_RETURN_IF_ERROR(StartLate());
  untold.push_back(late_.get());
  RUBATO_RETURN_IF_ERROR(
      AwaitEnds("told: the job has ended well, and nobody tells ", kTellPatience));
  for (const WorkerProcess* worker : untold) {
    if (!network_.alive(worker->self()) || worker->end()->ok()) continue;
    return absl::InternalError(
        absl::StrFormat("told: the job has ended well, and worker %d with: %s", worker->index(),
                        worker->end()->ToString()));
  }
  return absl::OkStatus();
}

absl::Status Simulation::AwaitEnds(const std::string& what, SimTime patience) {
  // Looks from time to time: to look costs more than an event.
  constexpr SimTime kLook = 100 * kMillisecond;
  const SimTime limit = std::max(queue_.now(), network_.disturbed_until()) + patience;
  for (std::vector<std::string> who = WhoGoesOn(); !who.empty(); who = WhoGoesOn()) {
    if (queue_.now() > limit) return absl::InternalError(what + absl::StrJoin(who, "; "));
    for (const SimTime look = queue_.now() + kLook; queue_.now() < look;) {
      if (!queue_.RunNext()) break;
    }
    RUBATO_RETURN_IF_ERROR(failure_);
  }
  return absl::OkStatus();
}

absl::Status Simulation::EndAll() {
  network_.SetFaults({});
  if (network_.alive(coordinator_->self())) {
    SetTask(kEndServer, is_dedicated() ? coordinator_->self() : worker_setting_.shards[0],
            kMessagesLeave);
  }
  return AwaitEnds("all end: the job is over, but not for ", setting_.ends_within);
}

}  // namespace rubato
