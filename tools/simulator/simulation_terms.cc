// How the job of a simulation outlives its servers, as server/process/server.h and term_begin.h
// have it of real ones.
#include <algorithm>
#include <cstring>
#include <utility>

#include "common/base/check.h"
#include "common/base/status.h"
#include "common/base/version.h"
#include "tools/simulator/simulation.h"

namespace rubato {
namespace {

// What is said last leaves before the coordinator's process begins anew.
constexpr SimTime kBeginsAfter = 500 * kMillisecond;

// How often one who is to begin looks whether it runs.
constexpr SimTime kBetweenTries = 100 * kMillisecond;

}  // namespace

bool Simulation::is_over() const {
  if (coordinator_->end().has_value()) return true;
  return !network_.alive(coordinator_->self()) && (!comes_back() || is_interrupted_);
}

Coordinator Simulation::MakeCore() {
  Coordinator::Begin begin;
  begin.resume = kept_.resume;
  begin.path = kept_.state.term() > 1 && kept_.resume.has_value() ? "the last checkpoint" : "";
  if (has_parts() && kept_.resume.has_value()) begin.shared_path = "checkpoint";
  begin.initial =
      (setting_.initial != nullptr || kept_.initial.has_value()) && !kept_.resume.has_value();
  begin.restore_key = kept_.state.term();
  begin.state = kept_.state;
  begin.values_of_piece = setting_.values_of_piece;
  Coordinator core(setting_.job, kept_.state.job_digest(), kVersion, begin, ToTime(queue_.now()),
                   setting_.policies);
  if (has_parts()) core.Handle(coordinator::PartsFolder{"parts"}, ToTime(queue_.now()));
  return core;
}

void Simulation::StartCoordinator() {
  if (coordinator_ != nullptr) dead_.push_back(std::move(coordinator_));
  // All values that a worker gives take as long as a checkpoint.
  const int64_t pieces = (blocks_.placement.space().values() - 1) / setting_.values_of_piece + 1;
  coordinator_ = std::make_unique<CoordinatorProcess>(
      &network_, MakeCore(), AllCallbacks(), absl::Seconds(setting_.job.cluster().lease()),
      setting_.checkpoint_time, setting_.checkpoint_time / pieces);
  const ProcessId process = network_.AddProcess(shard_card(head()), coordinator_.get());
  network_.SetVital(process, /*is_shard=*/false);
  shard_setting_.coordinator = worker_setting_.coordinator = process;
  for (WorkerSetting& misfit : misfit_settings_) misfit.coordinator = process;
  coordinator_->Start(process);
}

void Simulation::OnLostShard(int lost_shard, const absl::Status& why) {
  if (coordinator_->core().has_begun()) {
    kept_.state.set_samples(coordinator_->core().samples());
    kept_.state.set_seconds(coordinator_->core().seconds());
  }
  const bool has_trained = coordinator_->core().has_trained();
  kept_.state.set_terms_in_vain(has_trained ? 0 : kept_.state.terms_in_vain() + 1);
  kept_.state.set_reason(std::string(why.message()));
  kept_.state.set_lost_shard(lost_shard);
  SetTask(kBeginTerm, 0, kBeginsAfter);
}

// As in FindTermBegin.
void Simulation::CountTerm() {
  proto::RunState& state = kept_.state;
  state.set_term(state.term() + 1);
  state.set_servers_lost(state.servers_lost() + 1);
  if (!state.has_reason()) {
    state.set_reason(is_dedicated() ? "the coordinator was lost"
                                    : "shard 0, which coordinates the job, was lost");
    if (kept_.metrics.has_value()) {
      state.set_samples(kept_.metrics->samples);
      state.set_seconds(kept_.metrics->seconds);
    } else {
      state.set_terms_in_vain(state.terms_in_vain() + 1);
    }
  }
}

void Simulation::TellOfTerm() {
  if (setting_.on_term) setting_.on_term(kept_.state, kept_.resume);
  // How this one ends is not known.
  kept_.state.clear_reason();
  kept_.state.clear_lost_shard();
  kept_.state.clear_interrupted();
  kept_.metrics.reset();
  flushed_.state = kept_.state;
}

void Simulation::BeginTerm() {
  if (!network_.alive(coordinator_->self()) || coordinator_->is_in_term()) return;
  if (!network_.Runs(coordinator_->self())) {
    SetTask(kBeginTerm, 0, kBetweenTries);
    return;
  }
  if (is_interrupted_) {  // the signal counts, though nobody may have heard it in the term before
    KillServer(0);
    return;
  }
  CountTerm();
  coordinator_->BeginTerm(MakeCore());
  TellOfTerm();
  if (is_dedicated()) return;
  shards_[0]->BeginTerm();
  coordinator_->SetOwnShard(shards_[0]->control());
}

bool Simulation::MayContinue() const {
  return setting_.continues && !has_continued_ && coordinator_->end().has_value() &&
         absl::IsCancelled(*coordinator_->end()) && coordinator_->core().has_begun();
}

// As whoever starts the job again with the run's folder.
absl::Status Simulation::Continue() {
  has_continued_ = true;
  is_interrupted_ = false;
  if (setting_.before_continue) setting_.before_continue();
  RUBATO_RETURN_IF_ERROR(EndAll());
  // Of what had ended, nothing is left.
  for (int server = 0; server <= head(); ++server) KillServer(server);
  for (size_t number = 0; number < workers_.size(); ++number) {
    network_.Crash(worker_processes_[number]);
    network_.Crash(heartbeat_processes_[number]);
  }
  std::vector<Fault> faults;
  for (const Fault& fault : setting_.faults) {
    if (fault.at > network_.sent()) faults.push_back(fault);
  }
  network_.SetFaults(faults);
  // As in NextState.
  proto::RunState& state = kept_.state;
  state.set_term(state.term() + 1);
  state.set_interrupted(true);
  state.set_reason("shard 0, which coordinates the job, was ended by a signal");
  state.clear_samples();
  StartCoordinator();
  TellOfTerm();
  const size_t before = workers_.size();
  for (int shard = 0; shard < static_cast<int>(shards_.size()); ++shard) {
    dead_.push_back(std::move(shards_[shard]));
    if (IsApart(shard)) dead_.push_back(std::move(shard_heartbeats_[shard]));
    RUBATO_RETURN_IF_ERROR(MakeShard(shard));
  }
  for (int worker = 0; worker < setting_.job.cluster().workers().start(); ++worker) {
    RUBATO_RETURN_IF_ERROR(MakeWorker(worker));
  }
  StartFrom(before);
  return absl::OkStatus();
}

void Simulation::StartServer(int server) {
  const bool is_head = server == head();
  const ProcessId before =
      is_head && is_dedicated() ? coordinator_->self() : worker_setting_.shards[server];
  if (network_.alive(before)) return;
  if (is_head) {
    if (setting_.power_fails) {
      kept_ = flushed_;
      if (setting_.on_power_loss) setting_.on_power_loss();
    }
    CountTerm();
    StartCoordinator();
    TellOfTerm();
    if (is_dedicated()) return;
  }
  dead_.push_back(std::move(shards_[server]));
  if (IsApart(server)) dead_.push_back(std::move(shard_heartbeats_[server]));
  if (const absl::Status status = MakeShard(server); !status.ok()) return Fail(status);
  shards_[server]->Start(worker_setting_.shards[server]);
  if (!IsApart(server)) {
    coordinator_->SetOwnShard(shards_[0]->control());
  } else {
    shard_heartbeats_[server]->Start(shard_heartbeat_processes_[server]);
  }
}

// As RunFiles::SaveInitial.
absl::Status Simulation::SaveValues(const coordinator::SaveValues& save) {
  const FlatSpace& space = blocks_.placement.space();
  if (save.begin == 0) given_.clear();
  const size_t before = given_.size();
  given_.resize(before + save.values.size() / sizeof(float));
  std::memcpy(given_.data() + before, save.values.data(), save.values.size());
  if (!save.is_last) return absl::OkStatus();
  if (setting_.on_initial_values) setting_.on_initial_values(given_);
  given_.resize(space.values());
  kept_.initial.emplace();
  for (int64_t block = 0; block < space.blocks(); ++block) {
    kept_.initial->push_back(
        AsSymbol(absl::MakeConstSpan(given_).subspan(space.BlockValues(block).begin)));
  }
  flushed_.initial = kept_.initial;
  return absl::OkStatus();
}

absl::StatusOr<std::string> Simulation::WriteCheckpoint(uint32_t snapshot,
                                                        const proto::Manifest& manifest) {
  std::vector<uint64_t> symbols;
  if (setting_.disk_is_full && snapshot % 4 == 1) {
    return absl::ResourceExhaustedError("the disk is full");
  }
  for (const auto& shard : shards_) {
    if (shard->failed_part() != snapshot) continue;
    Fail(absl::InternalError("checkpoint: a part of it was not written"));
  }
  // Without faults nobody dies.
  if (setting_.data == nullptr && !setting_.faults.empty()) {
    for (int64_t block = 0; block < blocks_.placement.space().blocks(); ++block) {
      const std::optional<uint64_t> value = FindSnapshotValue(snapshot, block);
      const ProcessId shard = worker_setting_.shards[blocks_.placement.ShardOf(block)];
      if (!value.has_value() || !network_.alive(shard)) {
        return absl::UnavailableError("a shard is gone");
      }
      symbols.push_back(*value);
      const proto::BlockState& state = manifest.blocks(static_cast<int>(block));
      for (const uint32_t checksum : state.checksums()) {
        if (checksum == PartChecksum(*value)) continue;
        Fail(absl::InternalError(absl::StrFormat(
            "checkpoint: the part with block %d was written of another snapshot", block)));
      }
    }
  }
  absl::StatusOr<std::string> path = "";
  if (setting_.callbacks.checkpoint) path = setting_.callbacks.checkpoint(snapshot, manifest);
  if (!path.ok() || symbols.empty()) return path;
  flushed_.resume = std::exchange(kept_.resume, manifest);
  flushed_.symbols = std::exchange(kept_.symbols, std::move(symbols));
  return path;
}

}  // namespace rubato
