#include "tools/simulator/simulation.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "common/base/lease.h"
#include "common/base/status.h"
#include "common/base/version.h"
#include "common/job/is_script.h"
#include "common/job/job.h"
#include "common/space/modes.h"
#include "server/shard/float_values.h"
#include "tools/simulator/deferred_values.h"
#include "tools/simulator/real_worker.h"
#include "tools/simulator/symbolic_worker.h"

namespace rubato {
namespace {

// That a heartbeat may be under way: more than most draws of latency and jitter give.
constexpr absl::Duration kBeatTakes = absl::Milliseconds(250);

// A misfit that comes first goes when it has been here, and before the others come.
constexpr SimTime kFirstGoesAfter = 5 * kSecond;
constexpr SimTime kFirstIsGone = 6 * kSecond;

// With nothing but ticks left to happen: longer than any time that the cores wait for by the clock.
constexpr SimTime kPatience = 1000 * kSecond;

Blocks MakeBlocks(const SimulationSetting& setting) {
  return setting.one_block_for_each_shard ? Blocks::OneForEachShard(setting.job, setting.layout)
                                          : Blocks::Real(setting.job, setting.layout);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Simulation>> Simulation::Create(SimulationSetting setting) {
  Blocks blocks = MakeBlocks(setting);
  std::unique_ptr<Simulation> simulation(new Simulation(std::move(setting), std::move(blocks)));
  RUBATO_RETURN_IF_ERROR(simulation->Build());
  return simulation;
}

Simulation::Simulation(SimulationSetting setting, Blocks blocks)
    : setting_(std::move(setting)),
      blocks_(std::move(blocks)),
      network_(&queue_),
      limit_(setting_.limit) {}

absl::Status Simulation::Build() {
  const proto::Cluster& cluster = setting_.job.cluster();
  network_.SetJitter(setting_.jitter, setting_.seed);
  const absl::Duration lease = absl::Seconds(cluster.lease());
  const KeepAlive keep_alive(lease);
  network_.SetKeepAlive(absl::ToInt64Nanoseconds(keep_alive.ask + keep_alive.answer));
  network_.SetServersBear(
      absl::ToInt64Nanoseconds(BorneSilence(lease) - HeartbeatInterval(lease) - kBeatTakes),
      absl::ToInt64Nanoseconds(lease));
  network_.SetFaults(setting_.faults);
  network_.SetOnFault([this](const Fault& fault, SimMessage::Kind kind, ProcessId struck) {
    OnFault(fault, kind, struck);
  });
  for (int i = 0; i <= std::max(cluster.servers() - 1, head()); ++i)
    network_.AddCard(CardOf(&LinkSetting::shard, i));
  const std::string digest = JobDigest(setting_.job);
  SetWhatIsShared(digest);
  kept_.state.set_job_digest(digest);
  kept_.state.set_term(1);
  kept_.resume = setting_.resume;
  if (kept_.resume.has_value()) {
    kept_.symbols = setting_.initial_symbols;
    kept_.state.set_samples(kept_.resume->samples());
  } else if (!setting_.initial_symbols.empty()) {
    kept_.initial = setting_.initial_symbols;
  }
  flushed_ = kept_;
  StartCoordinator();
  self_ = network_.AddProcess(shard_card(0), this);
  shards_.resize(cluster.servers());
  worker_setting_.shards.resize(cluster.servers());
  shard_heartbeats_.resize(cluster.servers());
  shard_heartbeat_processes_.resize(cluster.servers());
  for (int shard = 0; shard < cluster.servers(); ++shard) RUBATO_RETURN_IF_ERROR(MakeShard(shard));
  for (int worker = 0; worker < cluster.workers().start() && !setting_.first.has_value();
       ++worker) {
    RUBATO_RETURN_IF_ERROR(MakeWorker(worker));
  }
  return absl::OkStatus();
}

void Simulation::StartAll() {
  StartFrom(0);
  if (!setting_.first.has_value()) return;
  StartMisfit(*setting_.first);
  if (!setting_.resume.has_value()) SetTask(kFirstGoes, 0, kFirstGoesAfter);
  for (int worker = 0; worker < setting_.job.cluster().workers().start(); ++worker) {
    SetTask(kStartWorker, worker, kFirstIsGone);
  }
}

void Simulation::StartFrom(size_t first) {
  for (size_t shard = 0; shard < shards_.size(); ++shard) {
    shards_[shard]->Start(worker_setting_.shards[shard]);
    if (!IsApart(static_cast<int>(shard))) {
      coordinator_->SetOwnShard(shards_[0]->control());
    } else {
      shard_heartbeats_[shard]->Start(shard_heartbeat_processes_[shard]);
    }
  }
  for (size_t number = first; number < workers_.size(); ++number) Start(number);
}

void Simulation::SetWhatIsShared(const std::string& digest) {
  const auto fail = [this](const absl::Status& status) { Fail(status); };
  shard_setting_.blocks = &blocks_;
  shard_setting_.policies = setting_.policies;
  shard_setting_.network = &network_;
  shard_setting_.has_symbols = setting_.data == nullptr;
  shard_setting_.read_part = [this](int shard) { return Restore({shard}); };
  shard_setting_.change_bytes_per_second = setting_.change_bytes_per_second;
  shard_setting_.job_digest = digest;
  shard_setting_.version = kVersion;
  shard_setting_.disk_is_full = setting_.disk_is_full;
  shard_setting_.disk_stands_still = setting_.disk_stands_still;
  shard_setting_.come_back = comes_back();
  shard_setting_.is_dedicated = is_dedicated();
  shard_setting_.start_timeout =
      absl::ToInt64Nanoseconds(absl::Seconds(setting_.job.cluster().start_timeout()));
  // Where one message stands for all blocks there is no order among them to keep.
  if (!setting_.one_block_for_each_shard) {
    shard_setting_.streams = worker_setting_.streams = setting_.streams;
  }
  if (setting_.observer != nullptr) shard_setting_.judge = worker_setting_.judge = &judge_;
  shard_setting_.on_failure = fail;
  worker_setting_.job = &setting_.job;
  worker_setting_.policies = setting_.policies;
  worker_setting_.blocks = &blocks_;
  worker_setting_.network = &network_;
  worker_setting_.speeds = &setting_.speeds;
  worker_setting_.micro_batch_time = setting_.micro_batch_time;
  worker_setting_.test_time = setting_.test_time;
  worker_setting_.final_test_time = setting_.final_test_time;
  worker_setting_.held_back = setting_.held_back;
  worker_setting_.ahead = setting_.ahead;
  worker_setting_.pulls_ahead = setting_.pulls_ahead;
  worker_setting_.name = "simulated worker";
  worker_setting_.job_digest = digest;
  worker_setting_.version = kVersion;
  worker_setting_.observer = setting_.observer;
  worker_setting_.on_failure = fail;
  worker_setting_.on_end = [this](int index, const absl::Status& status) {
    if (!status.ok()) Replace(index);
  };
  if (setting_.last_tester_dies) {
    worker_setting_.on_half_tested = [this](const WorkerProcess* worker) {
      if (std::exchange(has_lost_tester_, true)) return;
      // What it has told is there by then.
      const auto at = std::find_if(workers_.begin(), workers_.end(),
                                   [&](const auto& other) { return other.get() == worker; });
      SetTask(kTesterDies, static_cast<int>(at - workers_.begin()), setting_.final_test_time / 2);
    };
  }
  *worker_setting_.registration.mutable_layout() = setting_.layout;
  worker_setting_.registration.set_data_digest(setting_.data_digest);
  worker_setting_.registration.set_train_samples(setting_.train_samples);
  worker_setting_.registration.set_test_samples(setting_.test_samples);
  worker_setting_.registration.set_numerics("simulated");
}

absl::Status Simulation::MakeShard(int shard) {
  const auto make =
      [this, shard](SymbolicValues::Defer defer) -> absl::StatusOr<std::unique_ptr<ShardValues>> {
    const proto::Job& job = setting_.job;
    if (setting_.data != nullptr) {
      BlockMemory memory(nullptr);
      if (shard % 2 == 1) memory.copied = 0;  // both kinds of snapshots in one job
      RUBATO_ASSIGN_OR_RETURN(std::unique_ptr<ShardValues> floats,
                              FloatValues::Create(job, shard, memory));
      if (!defer) return floats;
      return std::make_unique<DeferredValues>(std::move(floats), std::move(defer));
    }
    return std::make_unique<SymbolicValues>(&blocks_, shard, job.seed(),
                                            setting_.symbols_are_judged, setting_.non_finite_in,
                                            std::move(defer), setting_.observer);
  };
  RUBATO_ASSIGN_OR_RETURN(shards_[shard], ShardProcess::Create(&shard_setting_, shard, make));
  ShardProcess* const process = shards_[shard].get();
  const ProcessId id = network_.AddProcess(shard_card(shard), process);
  worker_setting_.shards[shard] = id;
  network_.SetVital(id, /*is_shard=*/true);
  if (!IsApart(shard)) return absl::OkStatus();
  std::unique_ptr<HeartbeatProcess>& heartbeat = shard_heartbeats_[shard];
  heartbeat = MakeHeartbeat(
      id,
      [this, shard, id, process](proto::HeartbeatRequest* request) {
        request->set_shard(shard);
        request->set_attempt(process->attempt());
        request->set_busy_seconds(absl::ToDoubleSeconds(absl::Nanoseconds(network_.Holds(id))));
        return !process->end().has_value();
      },
      [] {});
  shard_heartbeat_processes_[shard] = network_.AddProcess(shard_card(shard), heartbeat.get());
  return absl::OkStatus();
}

int Simulation::WorkerCard(int index) {
  while (static_cast<int>(worker_cards_.size()) <= index) {
    const int number = static_cast<int>(worker_cards_.size());
    const int card = network_.AddCard(CardOf(&LinkSetting::worker, number));
    worker_cards_.push_back(card);
    for (const LinkSetting& link : setting_.links) {
      if (link.worker != number || !link.shard.has_value()) continue;
      const VirtualNetwork::Card& other = network_.card(shard_card(*link.shard));
      VirtualNetwork::Link way{
          link.latency.value_or(std::max(network_.card(card).latency, other.latency))};
      if (link.bytes_per_second.has_value()) way.bytes_per_second = *link.bytes_per_second;
      network_.SetLink(card, shard_card(*link.shard), way);
    }
  }
  return worker_cards_[index];
}

absl::StatusOr<std::unique_ptr<WorkerModel>> Simulation::MakeModel() {
  const proto::Job& job = setting_.job;
  if (setting_.data != nullptr) return RealWorker::Create(job, setting_.data, &floats_);
  return std::make_unique<SymbolicWorker>(
      blocks_.placement.space().blocks(), job.seed(), IsScript(job), setting_.non_finite_in,
      LeavesOut(), job.optimizer().has_clip_grad_norm(), job.checkpoint().has_keep_best());
}

absl::Status Simulation::MakeWorker(int index) {
  const int card = WorkerCard(index);
  RUBATO_ASSIGN_OR_RETURN(std::unique_ptr<WorkerModel> model, MakeModel());
  workers_.push_back(std::make_unique<WorkerProcess>(&worker_setting_, index, std::move(model)));
  WorkerProcess* worker = workers_.back().get();
  const ProcessId process = network_.AddProcess(card, worker);
  heartbeats_.push_back(MakeHeartbeat(
      process,
      [worker](proto::HeartbeatRequest* request) {
        const WorkerId id = worker->id();
        request->set_rank(id.rank);
        request->set_incarnation(id.incarnation);
        request->set_attempt(worker->attempt());
        request->set_term(worker->term());
        request->set_busy_seconds(absl::ToDoubleSeconds(absl::Nanoseconds(worker->busy())));
        return id.rank >= 0;
      },
      [worker] { worker->OnHeartbeatAnswered(); }));
  heartbeat_processes_.push_back(network_.AddProcess(card, heartbeats_.back().get()));
  worker_processes_.push_back(process);
  return absl::OkStatus();
}

std::unique_ptr<HeartbeatProcess> Simulation::MakeHeartbeat(
    ProcessId process, std::function<bool(proto::HeartbeatRequest*)> fill,
    std::function<void()> on_answer) {
  const SimTime every =
      absl::ToInt64Nanoseconds(HeartbeatInterval(absl::Seconds(setting_.job.cluster().lease())));
  return std::make_unique<HeartbeatProcess>(
      &network_, every, [this, process, fill = std::move(fill), on_answer = std::move(on_answer)] {
        const ProcessId coordinator = worker_setting_.coordinator;
        proto::HeartbeatRequest request;
        request.set_job_digest(worker_setting_.job_digest);
        if (!network_.Reaches(process, coordinator) || !fill(&request)) return;
        coordinator_->SendHeartbeat(std::move(request),
                                    network_.now() + network_.LatencyBetween(process, coordinator),
                                    on_answer);
      });
}

void Simulation::Start(size_t number) {
  // First: the worker may die of its first message.
  heartbeats_[number]->Start(heartbeat_processes_[number]);
  workers_[number]->Start(worker_processes_[number]);
}

VirtualNetwork::Card Simulation::CardOf(std::optional<int> LinkSetting::*machine,
                                        int number) const {
  VirtualNetwork::Card card = setting_.card;
  for (const LinkSetting& link : setting_.links) {
    if (link.*machine != number || (link.worker.has_value() && link.shard.has_value())) continue;
    card.latency = link.latency.value_or(card.latency);
    card.bytes_per_second = link.bytes_per_second.value_or(card.bytes_per_second);
  }
  return card;
}

absl::Status Simulation::Restore(const std::vector<int>& shards) {
  const std::vector<uint64_t>& symbols = kept_.resume.has_value() ? kept_.symbols : *kept_.initial;
  for (int64_t block = 0; block < blocks_.placement.space().blocks(); ++block) {
    if (std::count(shards.begin(), shards.end(), blocks_.placement.ShardOf(block)) == 0) continue;
    if (setting_.data == nullptr) {
      RUBATO_RETURN_IF_ERROR(RestoreBlock(block, 0, {symbols[block], {}}));
      continue;
    }
    const TrainingState& state = *setting_.initial;
    const Range values = blocks_.placement.space().BlockValues(block);
    for (size_t slot = 0; slot <= state.slots.size(); ++slot) {
      const std::vector<float>& vector = slot == 0 ? state.parameters : state.slots[slot - 1];
      const absl::Span<const float> floats =
          absl::MakeConstSpan(vector).subspan(values.begin, values.size());
      const auto payload = std::make_shared<const Payload>(setting_.initial, floats);
      RUBATO_RETURN_IF_ERROR(RestoreBlock(block, slot, {0, payload}));
    }
  }
  return absl::OkStatus();
}

absl::Status Simulation::RestoreBlock(int64_t block, size_t slot, const Content& content) {
  Frame frame;
  frame.kind = FrameKind::kRestore;
  frame.worker = kObserver;
  frame.block = static_cast<uint64_t>(block);
  frame.slot = static_cast<uint32_t>(slot);
  frame.unit = kept_.state.term();
  return shards_[blocks_.placement.ShardOf(block)]->Restore(kept_.state.term(), frame, content);
}

CoordinatorProcess::Callbacks Simulation::AllCallbacks() {
  CoordinatorProcess::Callbacks callbacks = setting_.callbacks;
  callbacks.restore = [this](const std::vector<int>& shards) { return Restore(shards); };
  callbacks.keep = [this](const proto::Lasting& lasting) {
    *kept_.state.mutable_lasting() = lasting;
    // How a term ended is written when all that it was asked for is.
    if (lasting.begun_term() == kept_.state.term() && !kept_.metrics.has_value() &&
        !kept_.state.has_reason()) {
      kept_.state.set_samples(lasting.begun_samples());
    }
    if (lasting.begun_term() == kept_.state.term() &&
        flushed_.state.lasting().begun_term() != lasting.begun_term()) {
      flushed_.state = kept_.state;
    }
  };
  callbacks.before_save = [this](const coordinator::SaveValues& save) {
    if (!setting_.script_changes || !save.is_last || has_changed_script_) return;
    has_changed_script_ = true;
    SetTask(kChangeScript, 0, 0);
  };
  callbacks.save_values = [this](const coordinator::SaveValues& save) { return SaveValues(save); };
  callbacks.on_refused = [this](const std::string& what) {
    Fail(absl::InternalError(absl::StrCat("refused: the coordinator refused: ", what)));
  };
  callbacks.on_ending = [this] {
    if (setting_.comes_late) SetTask(kStartWorker, static_cast<int>(worker_cards_.size()), 0);
  };
  callbacks.on_lost_shard = [this](int shard, const absl::Status& why) { OnLostShard(shard, why); };
  callbacks.on_metrics = [this](const MetricsLine& line, absl::Time now) {
    const bool is_of_training = line.kind == MetricsLine::Kind::kTrain;
    if (is_of_training && !kept_.metrics.has_value()) {
      kept_.metrics.emplace();
      kept_.state.clear_terms_in_vain();
    }
    if (kept_.metrics.has_value()) kept_.metrics->Add(is_of_training, line.samples, line.time);
    if (setting_.callbacks.on_metrics) setting_.callbacks.on_metrics(line, now);
  };
  callbacks.checkpoint = [this](uint32_t snapshot, const proto::Manifest& manifest) {
    return WriteCheckpoint(snapshot, manifest);
  };
  if (setting_.observer == nullptr) return callbacks;
  callbacks.on_view = [this](const proto::View& view, const std::string& reason, absl::Time now) {
    setting_.observer->OnView(view, network_.now());
    if (setting_.callbacks.on_view) setting_.callbacks.on_view(view, reason, now);
  };
  return callbacks;
}

absl::Status Simulation::Run() {
  StartAll();
  SimTime idle_since = kNever;
  while (!is_over()) {
    Step(&idle_since);
    if (!failure_.ok()) return failure_;
    if (MayContinue()) RUBATO_RETURN_IF_ERROR(Continue());
  }
  if (setting_.ends_within > 0) {
    // Of a job that is stopped before it has begun not all processes have been started.
    const bool tells = comes_back() && has_ended_well() && coordinator().view().number() > 0;
    RUBATO_RETURN_IF_ERROR(tells ? TellAll() : EndAll());
  }
  if (coordinator_->end().has_value()) return *coordinator_->end();
  return absl::UnavailableError("the coordinator (shard 0) has died");
}

void Simulation::Step(SimTime* idle_since) {
  constexpr char kNothing[] = "finishes: nothing is left to happen and the job has not ended";
  if (queue_.work() > 0) {
    *idle_since = kNever;
  } else if (*idle_since == kNever) {
    *idle_since = queue_.now();
  } else if (queue_.now() - *idle_since > kPatience) {
    return Fail(Waits(kNothing));
  }
  if (!queue_.RunNext()) return Fail(Waits(kNothing));
  if (setting_.after_event) setting_.after_event(*this);
  if (network_.sent() >= next_request_) Request();
  if (queue_.now() > limit_) {
    Fail(Waits(absl::StrFormat("finishes: the job has not ended after %s",
                               absl::FormatDuration(absl::Nanoseconds(queue_.now())))));
  }
}

absl::Status Simulation::Waits(const std::string& what) const {
  const proto::JobStatus status = coordinator_->core().Status(ToTime(queue_.now()));
  std::vector<std::string> lines = {
      absl::StrFormat("the coordinator (%s, view %d, %s, %d of %d samples): %s", status.state(),
                      status.view(), ModeName(status.mode()), status.samples(),
                      setting_.train_samples, absl::StrJoin(status.waits(), "; "))};
  for (size_t shard = 0; shard < shards_.size(); ++shard) {
    lines.push_back(absl::StrFormat("shard %d %s", shard, shards_[shard]->State()));
  }
  for (const auto& worker : workers_) {
    lines.push_back(absl::StrFormat("worker %d %s", worker->index(), worker->State()));
  }
  return absl::InternalError(absl::StrCat(what, "\n    ", absl::StrJoin(lines, "\n    ")));
}

absl::StatusOr<TrainingState> Simulation::ReadState(uint32_t snapshot, int slots) const {
  const Placement& placement = blocks_.placement;
  const FlatSpace& space = placement.space();
  std::vector<std::vector<float>> vectors(1 + slots, std::vector<float>(space.values()));
  int64_t missing = space.blocks() * (1 + slots);
  for (int shard = 0; shard < placement.shards(); ++shard) {
    const Range blocks = placement.Blocks(shard);
    if (blocks.empty()) continue;
    Frame pull;
    pull.kind = FrameKind::kPull;
    pull.worker = kObserver;
    pull.set_blocks(blocks);
    pull.snapshot = snapshot;
    RUBATO_RETURN_IF_ERROR(
        shards_[shard]->Read(pull, [&](const Frame& frame, const Content& content) {
          const absl::Span<const float> values = content.floats->values();
          std::copy(values.begin(), values.end(),
                    vectors[frame.slot].begin() +
                        space.BlockValues(static_cast<int64_t>(frame.block)).begin);
          --missing;
        }));
  }
  if (missing != 0) {
    return absl::InternalError(absl::StrFormat("%d blocks could not be read", missing));
  }
  TrainingState state;
  state.parameters = std::move(vectors[0]);
  state.slots.assign(std::make_move_iterator(vectors.begin() + 1),
                     std::make_move_iterator(vectors.end()));
  return state;
}

uint64_t Simulation::Value(int64_t block) const {
  return SymbolsOf(blocks_.placement.ShardOf(block)).value(block);
}

std::optional<uint64_t> Simulation::FindSnapshotValue(uint32_t snapshot, int64_t block) const {
  ShardProcess& shard = *shards_[blocks_.placement.ShardOf(block)];
  if (shard.core() == nullptr) return std::nullopt;
  Frame pull;
  pull.kind = FrameKind::kPull;
  pull.worker = kObserver;
  pull.set_blocks({block, block + 1});
  pull.snapshot = snapshot;
  std::optional<uint64_t> value;
  const absl::Status status =
      shard.Read(pull, [&](const Frame&, const Content& content) { value = content.symbol; });
  return status.ok() ? value : std::nullopt;
}

bool Simulation::HasLedger(int64_t block) const {
  return shards_[blocks_.placement.ShardOf(block)]->core() != nullptr;
}

const BlockLedger& Simulation::ledger(int64_t block) const {
  return shards_[blocks_.placement.ShardOf(block)]->core()->ledger(block);
}

}  // namespace rubato
