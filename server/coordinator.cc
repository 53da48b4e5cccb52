#include "server/coordinator.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/flat_space.h"
#include "common/learning_rate.h"
#include "server/parameter_groups.h"

namespace rubato {
namespace {

// Exit codes (docs/design.md): repeating cannot help / anything else.
constexpr int kExitUsage = 2;
constexpr int kExitFailure = 1;

void Send(PeerId peer, proto::CoordinatorMessage message, CoordinatorActions* actions) {
  CoordinatorAction action{CoordinatorAction::Kind::kSend};
  action.peer = peer;
  action.message = std::move(message);
  actions->push_back(std::move(action));
}

void SendStop(PeerId peer, int exit_code, const std::string& reason, bool refused,
              CoordinatorActions* actions) {
  proto::CoordinatorMessage message;
  message.mutable_stop()->set_refused(refused);
  message.mutable_stop()->set_exit_code(exit_code);
  message.mutable_stop()->set_reason(reason);
  Send(peer, std::move(message), actions);
}

void Say(CoordinatorAction::Kind kind, std::string text, CoordinatorActions* actions) {
  CoordinatorAction action{kind};
  action.text = std::move(text);
  actions->push_back(std::move(action));
}

void Report(const MetricsLine& line, CoordinatorActions* actions) {
  CoordinatorAction action{CoordinatorAction::Kind::kMetrics};
  action.metrics = line;
  actions->push_back(std::move(action));
}

// Micro-batches of one contribution on arrival: a worker's share of a step, fixed for the job.
int64_t LeavesOnArrival(const proto::Job& job) {
  return std::max<int64_t>(1, job.train().micro_batches() / job.cluster().workers().start());
}

// A point of the job as whole units of work, at least one.
int64_t UnitsAt(const proto::Point& point, const SampleSchedule& units, const proto::Job& job,
                int64_t samples_per_epoch) {
  const int64_t batch = job.train().batch_size();
  const int64_t samples =
      point.has_steps() ? SampleSchedule(samples_per_epoch, batch, 1).SamplesBefore(point.steps())
                        : SamplesAt(point, batch, samples_per_epoch);
  return std::max<int64_t>(1, units.UnitsFor(samples));
}

// What the others are told. Cancelled: by a signal to this process.
std::string WhyStopped(const absl::Status& end) {
  return absl::StrCat(end.code() == absl::StatusCode::kCancelled ? "shard 0 was ended: " : "",
                      end.message());
}

}  // namespace

Coordinator::Coordinator(const proto::Job& job, std::string job_digest, std::string version,
                         std::optional<proto::Manifest> resume, bool initial, absl::Time now)
    : job_(job),
      job_digest_(std::move(job_digest)),
      version_(std::move(version)),
      deadline_(now + absl::Seconds(job.cluster().start_timeout())),
      resume_(std::move(resume)),
      initial_(initial) {}

void Coordinator::OnMessage(PeerId peer, const proto::PeerMessage& message, absl::Time now,
                            CoordinatorActions* actions) {
  if (phase_ == Phase::kEnded) return;
  if (message.has_registration()) {
    OnRegistration(peer, message.registration(), actions);
    return;
  }
  const auto it = peers_.find(peer);
  if (it == peers_.end()) {
    SendStop(peer, kExitFailure, "a call begins with a registration", /*refused=*/true, actions);
    return;
  }
  switch (message.kind_case()) {
    case proto::PeerMessage::kShardOpened:
      OnShardOpened(peer, now, actions);
      break;
    case proto::PeerMessage::kWorkRequest:
      OnWorkRequest(peer, actions);
      break;
    case proto::PeerMessage::kProgress:
      OnProgress(message.progress(), now, actions);
      break;
    case proto::PeerMessage::kEvaluation:
      OnEvaluation(message.evaluation(), now, actions);
      break;
    case proto::PeerMessage::kWorkerFinished:
      OnWorkerFinished(peer, now, actions);
      break;
    case proto::PeerMessage::kShardReport:
      OnShardReport(message.shard_report(), actions);
      break;
    case proto::PeerMessage::kShardRestored:
      if (phase_ == Phase::kRestoring && ++restored_ == job_.cluster().servers()) {
        BeginTraining(now, actions);
      }
      break;
    case proto::PeerMessage::kShardHeld:
      OnShardHeld(message.shard_held(), actions);
      break;
    case proto::PeerMessage::kSnapshotCopied:
      OnSnapshotCopied(message.snapshot_copied(), actions);
      break;
    case proto::PeerMessage::kSnapshotMissed:
      OnSnapshotMissed(message.snapshot_missed(), actions);
      break;
    case proto::PeerMessage::kShardMeasured:
      OnShardMeasured(message.shard_measured(), actions);
      break;
    case proto::PeerMessage::kStopRequest:
      RequestStop(absl::AbortedError(absl::StrCat(Describe(it->second),
                                                  " was ended: ", message.stop_request().reason())),
                  "", actions);
      break;
    case proto::PeerMessage::kFailure: {
      const proto::Failure& failure = message.failure();
      if (failure.non_finite()) {
        OnDiverged(peer, failure.reason(), actions);
        break;
      }
      const std::string reason = absl::StrCat(Describe(it->second), " failed: ", failure.reason());
      End(failure.exit_code() == kExitUsage ? absl::FailedPreconditionError(reason)
                                            : absl::AbortedError(reason),
          failure.exit_code(), reason, actions);
      break;
    }
    default:
      break;  // of a later version
  }
}

void Coordinator::OnRegistration(PeerId peer, const proto::Registration& registration,
                                 CoordinatorActions* actions) {
  if (peers_.count(peer) != 0) return;
  if (const absl::Status status = CheckRegistration(registration); !status.ok()) {
    Say(CoordinatorAction::Kind::kWarn,
        absl::StrCat("refused ", registration.process(), ": ", status.message()), actions);
    SendStop(peer, status.code() == absl::StatusCode::kUnavailable ? kExitFailure : kExitUsage,
             std::string(status.message()), /*refused=*/true, actions);
    return;
  }
  if (registration.has_worker()) {
    AddWorker(peer, registration, actions);
  } else {
    Peer shard;
    shard.registration = registration;
    shard.rank = registration.shard();
    peers_[peer] = std::move(shard);
  }
  MaybeBegin(/*deadline_passed=*/false, actions);
  if (phase_ == Phase::kGathering) {
    Say(CoordinatorAction::Kind::kLog,
        absl::StrCat(Describe(peers_[peer]), " is here; waiting for ", Missing()), actions);
  }
}

absl::Status Coordinator::CheckRegistration(const proto::Registration& registration) const {
  if (registration.version() != version_) {
    return absl::FailedPreconditionError(
        absl::StrFormat("this process is version %s; the coordinator is version %s",
                        registration.version(), version_));
  }
  if (registration.job_digest() != job_digest_) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "this process has another job than the coordinator: the digest of its job is %s, the "
        "coordinator's %s; compare what it was started with and the run's job.yaml",
        registration.job_digest().substr(0, 12), job_digest_.substr(0, 12)));
  }
  if (!registration.has_worker()) {
    const int shard = registration.shard();
    const int servers = job_.cluster().servers();
    if (shard < 0 || shard >= servers) {
      return absl::FailedPreconditionError(
          absl::StrFormat("there is no shard %d: cluster.servers is %d, so shards are 0 to %d",
                          shard, servers, servers - 1));
    }
    for (const auto& [id, peer] : peers_) {
      if (!peer.is_worker && peer.rank == shard) {
        return absl::FailedPreconditionError(absl::StrFormat("shard %d is already served by %s",
                                                             shard, peer.registration.process()));
      }
    }
    return absl::OkStatus();
  }
  if (phase_ != Phase::kGathering || CountWorkers() >= job_.cluster().workers().start()) {
    return absl::UnavailableError(absl::StrFormat(
        "no more workers are wanted: cluster.workers is %d", job_.cluster().workers().start()));
  }
  const proto::WorkerRegistration& worker = registration.worker();
  if (worker.train_samples() <= 0 || ValueCount(worker.layout()) <= 0) {
    return absl::FailedPreconditionError("the worker has no data or no parameters");
  }
  for (const auto& [id, peer] : peers_) {
    if (!peer.is_worker) continue;
    const proto::WorkerRegistration& other = peer.registration.worker();
    if (worker.data_digest() != other.data_digest()) {
      return absl::FailedPreconditionError(absl::StrFormat(
          "this worker's data differ from those of %s: digests %s and %s", Describe(peer),
          worker.data_digest().substr(0, 12), other.data_digest().substr(0, 12)));
    }
    if (worker.layout().SerializeAsString() != layout_bytes_) {
      return absl::FailedPreconditionError(
          absl::StrFormat("this worker's parameters differ from those of %s", Describe(peer)));
    }
  }
  return absl::OkStatus();
}

void Coordinator::AddWorker(PeerId id, const proto::Registration& registration,
                            CoordinatorActions* actions) {
  std::set<int> taken;
  for (const auto& [other_id, other] : peers_) {
    if (!other.is_worker) continue;
    taken.insert(other.rank);
    const std::string& numerics = other.registration.worker().numerics();
    if (numerics != registration.worker().numerics()) {
      Say(CoordinatorAction::Kind::kWarn,
          absl::StrFormat("%s computes with %s, %s with %s: results may differ in the last bits "
                          "with who computes what",
                          registration.process(), registration.worker().numerics(), Describe(other),
                          numerics),
          actions);
    }
  }
  int rank = registration.worker().rank();
  if (rank < 0 || rank >= job_.cluster().workers().start() || taken.count(rank) != 0) {
    for (rank = 0; taken.count(rank) != 0;) ++rank;
  }
  if (taken.empty()) layout_bytes_ = registration.worker().layout().SerializeAsString();
  Peer worker;
  worker.registration = registration;
  worker.is_worker = true;
  worker.rank = rank;
  peers_[id] = std::move(worker);
}

void Coordinator::MaybeBegin(bool deadline_passed, CoordinatorActions* actions) {
  if (phase_ != Phase::kGathering) return;
  const proto::Workers& workers = job_.cluster().workers();
  const bool all_shards = CountShards() == job_.cluster().servers();
  if (all_shards && CountWorkers() == workers.start()) {
    Open(actions);
  } else if (deadline_passed && all_shards && CountWorkers() >= workers.min()) {
    Say(CoordinatorAction::Kind::kWarn,
        absl::StrFormat("begins with %d of %d workers: the others have not come within %s",
                        CountWorkers(), workers.start(),
                        absl::FormatDuration(absl::Seconds(job_.cluster().start_timeout()))),
        actions);
    Open(actions);
  } else if (deadline_passed) {
    const std::string reason =
        absl::StrFormat("waited %s at %s: %s did not come",
                        absl::FormatDuration(absl::Seconds(job_.cluster().start_timeout())),
                        job_.cluster().address(), Missing());
    End(absl::DeadlineExceededError(reason), kExitFailure, reason, actions);
  }
}

void Coordinator::Open(CoordinatorActions* actions) {
  // Ranks without gaps, in the order of the ranks given before.
  std::vector<Peer*> workers;
  view_.clear_shards();
  for (int shard = 0; shard < job_.cluster().servers(); ++shard) view_.add_shards();
  for (auto& [id, peer] : peers_) {
    if (peer.is_worker) {
      workers.push_back(&peer);
    } else {
      view_.set_shards(peer.rank, peer.registration.address());
    }
  }
  std::sort(workers.begin(), workers.end(),
            [](const Peer* a, const Peer* b) { return a->rank < b->rank; });
  const proto::WorkerRegistration& first = workers[0]->registration.worker();

  view_.set_number(1);
  const bool sync = job_.consistency().mode() == proto::Consistency::MODE_SYNC;
  view_.set_mode(sync ? proto::View::MODE_SYNC : proto::View::MODE_ASYNC);
  const int64_t micro_batches = job_.train().micro_batches();
  view_.set_leaves(sync ? micro_batches : LeavesOnArrival(job_));
  view_.set_samples_per_epoch(first.train_samples());
  *view_.mutable_layout() = first.layout();

  const int64_t n = first.train_samples();
  const int64_t batch = job_.train().batch_size();
  schedule_.emplace(n, batch / micro_batches * view_.leaves(), view_.leaves());
  const proto::Point& until = job_.train().until();
  // By time alone: as far as it comes. The bound keeps counts of samples within int64.
  units_ = until.has_time() ? schedule_->UnitsFor(int64_t{1} << 50)
                            : UnitsAt(until, *schedule_, job_, n);
  view_.set_from_step(resume_.has_value() ? resume_->step() : 0);
  view_.set_until_step(units_);
  view_.set_verdict_steps(sync &&
                          (job_.optimizer().has_clip_grad_norm() ||
                           job_.train().on_non_finite() == proto::Train::ON_NON_FINITE_SKIP));
  view_.set_evaluate_every(UnitsAt(job_.evaluation().every(), *schedule_, job_, n));
  if (job_.checkpoint().every().has_time()) {
    every_time_ = absl::Seconds(job_.checkpoint().every().time());
  } else if (job_.checkpoint().has_every()) {
    every_units_ = UnitsAt(job_.checkpoint().every(), *schedule_, job_, n);
  }
  if (resume_.has_value()) {
    if (const absl::Status status = CheckResume(first); !status.ok()) {
      End(status, kExitUsage, std::string(status.message()), actions);
      return;
    }
  }

  const int64_t count = static_cast<int64_t>(workers.size());
  for (int64_t rank = 0; rank < count; ++rank) {
    workers[rank]->rank = static_cast<int>(rank);
    proto::Member* member = view_.add_members();
    member->set_rank(static_cast<int32_t>(rank));
    member->set_incarnation(1);
    member->set_start_clock(0);
    if (sync) {
      member->set_first_leaf(rank * micro_batches / count);
      member->set_end_leaf((rank + 1) * micro_batches / count);
    }
  }
  if (sync && count > micro_batches) {
    Say(CoordinatorAction::Kind::kWarn,
        absl::StrFormat("%d of %d workers have nothing to compute: train.micro_batches is %d",
                        count - micro_batches, count, micro_batches),
        actions);
  }
  for (std::string& group : UnusedGroups(job_.optimizer(), view_.layout())) {
    Say(CoordinatorAction::Kind::kWarn, std::move(group), actions);
  }
  phase_ = Phase::kOpening;
  for (const auto& [id, peer] : peers_) {
    if (peer.is_worker) continue;
    proto::CoordinatorMessage message;
    *message.mutable_view() = view_;
    Send(id, std::move(message), actions);
  }
}

absl::Status Coordinator::CheckResume(const proto::WorkerRegistration& worker) const {
  if (resume_->data_digest() != worker.data_digest()) {
    return absl::FailedPreconditionError(
        absl::StrFormat("the checkpoint was made on other data: digests %s, now %s",
                        resume_->data_digest().substr(0, 12), worker.data_digest().substr(0, 12)));
  }
  const int64_t unit_samples =
      job_.train().batch_size() / job_.train().micro_batches() * view_.leaves();
  if (resume_->mode() != view_.mode() || resume_->unit_samples() != unit_samples) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "the checkpoint counts in %s of %d samples, this job in %s of %d: consistency.mode, "
        "train.batch_size, and on arrival train.micro_batches and cluster.workers.start, must stay "
        "as they were",
        resume_->mode() == proto::View::MODE_SYNC ? "steps" : "contributions",
        resume_->unit_samples(), sync() ? "steps" : "contributions", unit_samples));
  }
  if (!sync() && resume_->block_values() != BlockValues()) {
    return absl::FailedPreconditionError(
        "wire.chunk must stay as it was: on arrival each block has its own history");
  }
  return absl::OkStatus();
}

int64_t Coordinator::BlockValues() const {
  return job_.wire().chunk() / static_cast<int64_t>(sizeof(float));
}

void Coordinator::SendToShards(const proto::CoordinatorMessage& message,
                               CoordinatorActions* actions) {
  for (const auto& [id, peer] : peers_) {
    if (!peer.is_worker) Send(id, message, actions);
  }
}

void Coordinator::OnShardOpened(PeerId peer, absl::Time now, CoordinatorActions* actions) {
  if (phase_ != Phase::kOpening || peers_[peer].is_worker) return;
  peers_[peer].finished = true;
  if (!AllFinished(/*workers=*/false)) return;
  if (resume_.has_value() || initial_) {
    phase_ = Phase::kRestoring;
    SendRestore(actions);
  } else {
    BeginTraining(now, actions);
  }
}

void Coordinator::SendRestore(CoordinatorActions* actions) {
  const FlatSpace space(ValueCount(view_.layout()), BlockValues(), view_.shards_size());
  std::map<int64_t, const proto::BlockState*> states;
  if (resume_.has_value()) {
    for (const proto::BlockState& block : resume_->blocks()) states[block.block()] = &block;
    // What some block does not hold is given out again; blocks that do hold it take no notice.
    if (!sync()) {
      const auto holds = [](const proto::BlockState& block, int64_t unit) {
        return unit < block.units_below() ||
               std::count(block.units_above().begin(), block.units_above().end(), unit) > 0;
      };
      int64_t below = resume_->step();
      for (const proto::BlockState& block : resume_->blocks()) {
        below = std::min(below, block.units_below());
      }
      for (int64_t unit = below; unit < resume_->step(); ++unit) {
        if (!std::all_of(resume_->blocks().begin(), resume_->blocks().end(),
                         [&](const proto::BlockState& block) { return holds(block, unit); })) {
          redo_.push_back(unit);
        }
      }
      next_unit_ = resume_->step();
    }
  }
  for (const auto& [id, peer] : peers_) {
    if (peer.is_worker) continue;
    proto::CoordinatorMessage message;
    proto::Restore* restore = message.mutable_restore();
    if (resume_.has_value()) restore->set_slots(resume_->slots_size());
    const Range blocks = space.ShardBlocks(peer.rank);
    for (int64_t block = blocks.begin; block < blocks.end; ++block) {
      proto::BlockState* state = restore->add_blocks();
      if (resume_.has_value() && sync()) {
        // All blocks are at one version, so they may be cut anew.
        *state = resume_->blocks(0);
      } else if (resume_.has_value() && states.count(block) != 0) {
        *state = *states[block];
      }
      state->set_block(block);
    }
    Send(id, std::move(message), actions);
  }
  actions->push_back({CoordinatorAction::Kind::kRestore});
}

void Coordinator::BeginTraining(absl::Time now, CoordinatorActions* actions) {
  phase_ = Phase::kRunning;
  begin_time_ = last_snapshot_time_ = now;
  seconds_before_ = resume_.has_value() ? resume_->seconds() : 0;
  int64_t units_before = 0;
  if (resume_.has_value()) {
    units_before = resume_->step() - static_cast<int64_t>(redo_.size());
  }
  metrics_.emplace(job_, sync(), *schedule_, view_.samples_per_epoch(), units_before,
                   now - absl::Seconds(seconds_before_), now);
  Say(CoordinatorAction::Kind::kLog,
      absl::StrFormat("training %s: %d workers, %d shards, %d parameters, %d %s",
                      resume_.has_value() ? absl::StrCat("goes on at ", units_before) : "begins",
                      view_.members_size(), view_.shards_size(), ValueCount(view_.layout()), units_,
                      sync() ? "steps" : "contributions"),
      actions);
  ScheduleSnapshot(units_before, actions);
  for (const auto& [id, worker] : peers_) {
    if (!worker.is_worker) continue;
    proto::CoordinatorMessage message;
    *message.mutable_view() = view_;
    message.mutable_view()->set_your_rank(worker.rank);
    Send(id, std::move(message), actions);
  }
}

void Coordinator::OnWorkRequest(PeerId peer, CoordinatorActions* actions) {
  if (phase_ != Phase::kRunning || sync()) return;
  proto::CoordinatorMessage message;
  proto::Work* work = message.mutable_work();
  if (stopping_) {
    // What has been given out is the last.
  } else if (!redo_.empty()) {
    work->set_contribution(redo_.front());
    redo_.erase(redo_.begin());
  } else if (next_unit_ < units_) {
    work->set_evaluate(next_unit_ > 0 && next_unit_ % view_.evaluate_every() == 0);
    work->set_contribution(next_unit_++);
  }
  Send(peer, std::move(message), actions);
}

void Coordinator::OnProgress(const proto::Progress& progress, absl::Time now,
                             CoordinatorActions* actions) {
  if (!metrics_.has_value()) return;
  if (progress.left_out()) {
    ++skipped_;
    Say(CoordinatorAction::Kind::kWarn,
        absl::StrFormat("contribution %d is left out: its gradient is not finite (%d so far)",
                        progress.unit(), skipped_),
        actions);
  }
  std::vector<MetricsLine> lines;
  metrics_->OnProgress(progress, now, &lines);
  for (const MetricsLine& line : lines) Report(line, actions);
  if (!sync() && every_units_ > 0 && metrics_->units() % every_units_ == 0) {
    checkpoint_wanted_ = true;
  }
  OnTick(now, actions);
}

void Coordinator::OnWorkerFinished(PeerId peer, absl::Time now, CoordinatorActions* actions) {
  if (phase_ != Phase::kRunning || !peers_[peer].is_worker || peers_[peer].finished) return;
  peers_[peer].finished = true;
  if (!AllFinished(/*workers=*/true)) return;
  std::vector<MetricsLine> lines;
  metrics_->CloseWindow(now, &lines);
  for (const MetricsLine& line : lines) Report(line, actions);
  summary_.steps = sync() ? units_ : metrics_->steps();
  summary_.samples = sync() ? schedule_->SamplesBefore(units_) : metrics_->samples();
  summary_.seconds = metrics_->Seconds(now);
  const double seconds = absl::ToDoubleSeconds(now - begin_time_);
  summary_.samples_per_second =
      seconds > 0 ? static_cast<double>(metrics_->new_samples()) / seconds : 0;
  summary_.skipped = skipped_;
  MaybeEnd(actions);
}

void Coordinator::MaybeEnd(CoordinatorActions* actions) {
  if (phase_ != Phase::kRunning || !AllFinished(/*workers=*/true)) return;
  if (snapshot_.phase == SnapshotPhase::kAnnounced) {
    snapshot_.phase = SnapshotPhase::kNone;  // of a step that will not be
  }
  if (snapshot_.phase != SnapshotPhase::kNone) return;
  if (!final_checkpoint_done_ && (job_.checkpoint().has_every() || stopping_)) {
    final_checkpoint_done_ = true;
    Snapshot(units_, actions);
    return;
  }
  if (!stop_end_.ok()) {
    End(stop_end_, kExitFailure, WhyStopped(stop_end_), actions);
    return;
  }
  phase_ = Phase::kEvaluating;
  final_unit_ = sync() ? units_ : metrics_->units();
  for (const auto& [id, worker] : peers_) {
    if (!worker.is_worker || worker.rank != 0) continue;
    proto::CoordinatorMessage message;
    message.mutable_evaluation_request()->set_step(final_unit_);
    Send(id, std::move(message), actions);
  }
}

void Coordinator::OnEvaluation(const proto::EvaluationResult& evaluation, absl::Time now,
                               CoordinatorActions* actions) {
  if (!metrics_.has_value() || evaluation.samples() <= 0 || evaluation.unit() < 0) return;
  const MetricsLine line = metrics_->OnEvaluation(evaluation, now);
  Report(line, actions);
  if (evaluation.is_final()) {
    if (phase_ == Phase::kEvaluating && evaluation.unit() == final_unit_) {
      OnEvaluated(line, actions);
    }
    return;
  }
  eval_loss_ = line.loss;
  eval_accuracy_ = line.accuracy;
  has_evaluation_ = true;
  const proto::StopWhen& when = job_.train().stop_when();
  if (!job_.train().has_stop_when()) return;
  if (when.metric() == proto::METRIC_EVAL_ACCURACY && !line.accuracy.has_value()) return;
  const bool is_loss = when.metric() == proto::METRIC_EVAL_LOSS;
  const double value = is_loss ? line.loss : *line.accuracy;
  if (when.has_at_least() ? value >= when.at_least() : value <= when.at_most()) {
    RequestStop(absl::OkStatus(),
                absl::StrFormat("the target is met: %s is %g",
                                is_loss ? "eval/loss" : "eval/accuracy", value),
                actions);
  }
}

void Coordinator::OnEvaluated(const MetricsLine& line, CoordinatorActions* actions) {
  summary_.test_loss = line.loss;
  summary_.test_accuracy = line.accuracy;
  if (has_evaluation_ && job_.evaluation().split() == proto::Evaluation::SPLIT_VALIDATION) {
    summary_.validation_loss = eval_loss_;
    summary_.validation_accuracy = eval_accuracy_;
  }
  phase_ = Phase::kReporting;
  proto::CoordinatorMessage message;
  message.mutable_report_request();
  SendToShards(message, actions);
}

void Coordinator::RequestStop(const absl::Status& end, const std::string& reason,
                              CoordinatorActions* actions) {
  if (phase_ == Phase::kEnded) return;
  if (phase_ != Phase::kRunning) {  // nothing to save
    if (!end.ok()) End(end, kExitFailure, WhyStopped(end), actions);
    return;
  }
  if (!end.ok() && stop_end_.ok()) stop_end_ = end;
  if (stopping_) return;
  stopping_ = true;
  Say(CoordinatorAction::Kind::kLog,
      absl::StrCat("stopping: ", end.ok() ? reason : std::string(end.message())), actions);
  if (snapshot_.phase == SnapshotPhase::kAnnounced) snapshot_.phase = SnapshotPhase::kNone;
  // Else as soon as the snapshot that is under way has been written. On arrival no more work is
  // given out.
  if (sync() && snapshot_.phase == SnapshotPhase::kNone) Hold(actions);
}

absl::Status Coordinator::RequestCheckpoint(CoordinatorActions* actions) {
  if (phase_ != Phase::kRunning || stopping_) {
    return absl::UnavailableError("the job is not training");
  }
  checkpoint_wanted_ = true;
  StartWanted(actions);
  return absl::OkStatus();
}

void Coordinator::StartWanted(CoordinatorActions* actions) {
  if (phase_ != Phase::kRunning || !checkpoint_wanted_ || stopping_) return;
  if (snapshot_.phase == SnapshotPhase::kAnnounced) snapshot_.phase = SnapshotPhase::kNone;
  if (snapshot_.phase != SnapshotPhase::kNone) return;
  checkpoint_wanted_ = false;
  if (sync()) {
    Hold(actions);
  } else {
    Snapshot(0, actions);
  }
}

void Coordinator::Hold(CoordinatorActions* actions) {
  snapshot_.phase = SnapshotPhase::kHolding;
  snapshot_.answers = 0;
  snapshot_.highest = 0;
  proto::CoordinatorMessage message;
  message.mutable_hold();
  SendToShards(message, actions);
}

void Coordinator::OnShardHeld(const proto::ShardHeld& held, CoordinatorActions* actions) {
  if (snapshot_.phase != SnapshotPhase::kHolding) return;
  snapshot_.highest = std::max(snapshot_.highest, held.version());
  if (++snapshot_.answers < job_.cluster().servers()) return;
  // Every block can reach the step after the highest: its contributions do not depend on what is
  // held.
  const int64_t step = std::min(snapshot_.highest + 1, units_);
  if (stopping_) {
    units_ = step;
    final_checkpoint_done_ = true;
    for (const auto& [id, peer] : peers_) {
      if (!peer.is_worker) continue;
      proto::CoordinatorMessage message;
      message.mutable_end_at()->set_step(step);
      Send(id, std::move(message), actions);
    }
  }
  Snapshot(step, actions);
}

void Coordinator::Snapshot(int64_t step, CoordinatorActions* actions) {
  snapshot_.phase = SnapshotPhase::kTaking;
  ++snapshot_.id;
  snapshot_.step = step;
  snapshot_.answers = 0;
  snapshot_.blocks.clear();
  proto::CoordinatorMessage message;
  message.mutable_snapshot()->set_id(snapshot_.id);
  message.mutable_snapshot()->set_step(step);
  message.mutable_snapshot()->set_end(stopping_ && sync());
  SendToShards(message, actions);
}

void Coordinator::ScheduleSnapshot(int64_t after, CoordinatorActions* actions) {
  if (!sync() || every_units_ == 0 || stopping_ || snapshot_.phase != SnapshotPhase::kNone) return;
  const int64_t step = (after / every_units_ + 1) * every_units_;
  if (step >= units_) return;  // the end has one of its own
  Snapshot(step, actions);
  snapshot_.phase = SnapshotPhase::kAnnounced;
}

void Coordinator::OnSnapshotCopied(const proto::SnapshotCopied& copied,
                                   CoordinatorActions* actions) {
  if (copied.id() != snapshot_.id ||
      (snapshot_.phase != SnapshotPhase::kAnnounced && snapshot_.phase != SnapshotPhase::kTaking)) {
    return;
  }
  snapshot_.phase = SnapshotPhase::kTaking;
  for (const proto::BlockState& block : copied.blocks()) snapshot_.blocks[block.block()] = block;
  if (++snapshot_.answers < job_.cluster().servers()) return;
  snapshot_.phase = SnapshotPhase::kWriting;
  CoordinatorAction action{CoordinatorAction::Kind::kCheckpoint};
  action.snapshot = snapshot_.id;
  action.manifest = MakeManifest();
  actions->push_back(std::move(action));
}

void Coordinator::OnSnapshotMissed(const proto::SnapshotMissed& missed,
                                   CoordinatorActions* actions) {
  if (missed.id() != snapshot_.id) return;
  snapshot_.phase = SnapshotPhase::kNone;
  ScheduleSnapshot(missed.version(), actions);
}

proto::Manifest Coordinator::MakeManifest() const {
  proto::Manifest manifest;
  manifest.set_format(1);
  manifest.set_version(version_);
  manifest.set_job_digest(job_digest_);
  manifest.set_seed(job_.seed());
  manifest.set_mode(view_.mode());
  for (const auto& [id, peer] : peers_) {
    if (!peer.is_worker) continue;
    manifest.set_data_digest(peer.registration.worker().data_digest());
  }
  int64_t samples = 0;
  for (const auto& [index, block] : snapshot_.blocks) {
    *manifest.add_blocks() = block;
    samples = std::max(samples, block.samples());
  }
  manifest.set_step(sync() ? snapshot_.step : next_unit_);
  manifest.set_samples(samples);
  manifest.set_samples_per_epoch(view_.samples_per_epoch());
  manifest.set_epoch(static_cast<double>(samples) / view_.samples_per_epoch());
  manifest.set_unit_samples(job_.train().batch_size() / job_.train().micro_batches() *
                            view_.leaves());
  manifest.set_block_values(BlockValues());
  manifest.set_seconds(metrics_->last_seconds());
  if (has_evaluation_) {
    manifest.set_eval_loss(eval_loss_);
    if (eval_accuracy_.has_value()) manifest.set_eval_accuracy(*eval_accuracy_);
  }
  return manifest;
}

void Coordinator::OnCheckpointed(uint32_t snapshot, const absl::StatusOr<std::string>& path,
                                 CoordinatorActions* actions) {
  proto::CoordinatorMessage message;
  message.mutable_release_snapshot()->set_id(snapshot);
  SendToShards(message, actions);
  if (path.ok()) {
    last_checkpoint_ = *path;
    Say(CoordinatorAction::Kind::kLog, absl::StrCat("checkpoint ", *path), actions);
  } else if (!checkpoint_failed_) {  // one warning until there is one again
    Say(CoordinatorAction::Kind::kWarn,
        absl::StrFormat("no checkpoint of step %d: %s; training goes on, the last good one is %s",
                        snapshot_.step, path.status().message(),
                        last_checkpoint_.empty() ? "none" : last_checkpoint_),
        actions);
  }
  checkpoint_failed_ = !path.ok();
  if (phase_ == Phase::kEnded) return;
  snapshot_.phase = SnapshotPhase::kNone;
  if (!diverged_.empty()) {
    EndDiverged(actions);
    return;
  }
  if (stopping_ && sync() && !final_checkpoint_done_) {
    Hold(actions);
    return;
  }
  StartWanted(actions);
  ScheduleSnapshot(std::max(snapshot_.step, metrics_->units()), actions);
  MaybeEnd(actions);
}

void Coordinator::OnShardMeasured(const proto::ShardMeasured& measured,
                                  CoordinatorActions* actions) {
  const FlatSpace space(ValueCount(view_.layout()), BlockValues(), view_.shards_size());
  Measured& step = measured_.try_emplace(measured.step(), space.values()).first->second;
  step.samples = measured.samples();
  if (measured.has_non_finite() &&
      (step.non_finite < 0 || measured.non_finite() < step.non_finite)) {
    step.non_finite = measured.non_finite();
  }
  for (const proto::ShardMeasured::Node& node : measured.nodes()) {
    step.squares.AddNode({{node.begin(), node.end()}, node.sum()});
  }
  const int64_t owners = std::min<int64_t>(space.blocks(), space.shards());
  if (++step.shards < owners) return;

  proto::CoordinatorMessage message;
  proto::Verdict* verdict = message.mutable_verdict();
  verdict->set_step(measured.step());
  if (step.non_finite >= 0) {
    if (job_.train().on_non_finite() == proto::Train::ON_NON_FINITE_STOP) {
      // Each worker's own sums are finite, or it would have said so.
      OnDiverged(
          kOwnShard,
          absl::StrFormat("step %d: the gradient of %s, summed over the workers, is not finite",
                          measured.step(), ParameterAt(view_.layout(), step.non_finite)),
          actions);
      return;
    }
    verdict->set_apply(false);
    ++skipped_;
    Say(CoordinatorAction::Kind::kWarn,
        absl::StrFormat("step %d is left out: the gradient of %s is not finite (%d so far)",
                        measured.step(), ParameterAt(view_.layout(), step.non_finite), skipped_),
        actions);
  } else if (job_.optimizer().has_clip_grad_norm() && step.squares.complete()) {
    verdict->set_factor(
        ClipFactor(step.squares.sum(), step.samples, job_.optimizer().clip_grad_norm()));
  }
  measured_.erase(measured.step());
  SendToShards(message, actions);
}

void Coordinator::OnDiverged(PeerId peer, const std::string& reason, CoordinatorActions* actions) {
  if (!diverged_.empty()) return;
  diverged_ = reason;
  diverged_peer_ = peer;
  if (snapshot_.phase != SnapshotPhase::kWriting) EndDiverged(actions);
}

void Coordinator::EndDiverged(CoordinatorActions* actions) {
  const std::string checkpoint =
      last_checkpoint_.empty() ? "there is no checkpoint"
                               : absl::StrCat("the last good checkpoint is ", last_checkpoint_);
  std::string reason = absl::StrCat(diverged_, "; ", checkpoint);
  if (const auto culprit = peers_.find(diverged_peer_);
      culprit != peers_.end() && diverged_peer_ != kOwnShard) {
    SendStop(diverged_peer_, kExitFailure, reason, /*refused=*/true, actions);
    reason = absl::StrCat(Describe(culprit->second), " failed: ", reason);
  }
  End(absl::AbortedError(reason), kExitFailure, reason, actions);
}

void Coordinator::OnShardReport(const proto::ShardReport& report, CoordinatorActions* actions) {
  if (phase_ != Phase::kReporting) return;
  summary_.duplicates += report.duplicates();
  summary_.blocks.insert(summary_.blocks.end(), report.blocks().begin(), report.blocks().end());
  if (++reports_ < job_.cluster().servers()) return;
  std::sort(summary_.blocks.begin(), summary_.blocks.end(),
            [](const auto& a, const auto& b) { return a.block() < b.block(); });
  phase_ = Phase::kCollecting;
  CoordinatorAction action{CoordinatorAction::Kind::kCollect};
  action.version = sync() ? units_ : 0;
  actions->push_back(std::move(action));
}

void Coordinator::OnCollected(const absl::Status& status, CoordinatorActions* actions) {
  if (phase_ != Phase::kCollecting) return;
  End(status, status.ok() ? 0 : kExitFailure,
      status.ok() ? "" : absl::StrCat("shard 0 has failed: ", status.message()), actions);
}

void Coordinator::OnPeerGone(PeerId peer, CoordinatorActions* actions) {
  const auto it = peers_.find(peer);
  if (it == peers_.end() || phase_ == Phase::kEnded) return;
  const std::string who = Describe(it->second);
  if (phase_ == Phase::kGathering) {
    Say(CoordinatorAction::Kind::kWarn, absl::StrCat(who, " has left before the start"), actions);
    peers_.erase(it);
    return;
  }
  const std::string reason = absl::StrFormat("%s is gone: its connection broke at step %d", who,
                                             metrics_.has_value() ? metrics_->units() : 0);
  peers_.erase(it);
  End(absl::AbortedError(reason), kExitFailure, reason, actions);
}

void Coordinator::OnTick(absl::Time now, CoordinatorActions* actions) {
  if (phase_ == Phase::kGathering && now >= deadline_) {
    MaybeBegin(/*deadline_passed=*/true, actions);
  }
  if (phase_ != Phase::kRunning) return;
  if (now - last_snapshot_time_ >= every_time_) {
    last_snapshot_time_ = now;
    checkpoint_wanted_ = true;
  }
  StartWanted(actions);
  const proto::Point& until = job_.train().until();
  if (until.has_time() && !stopping_ && metrics_->Seconds(now) >= until.time()) {
    RequestStop(absl::OkStatus(), "train.until has been reached", actions);
  }
}

void Coordinator::OnFailure(const absl::Status& status, CoordinatorActions* actions) {
  if (phase_ == Phase::kEnded) return;
  End(status, kExitFailure, absl::StrCat("shard 0 has failed: ", status.message()), actions);
}

void Coordinator::End(const absl::Status& status, int exit_code, const std::string& reason,
                      CoordinatorActions* actions) {
  const bool was_training = phase_ >= Phase::kRunning;
  phase_ = Phase::kEnded;
  if (was_training && !status.ok() && !last_checkpoint_.empty() && diverged_.empty()) {
    Say(CoordinatorAction::Kind::kLog,
        absl::StrCat("the last good checkpoint is ", last_checkpoint_), actions);
  }
  for (const auto& [id, peer] : peers_) {
    if (id != kOwnShard) SendStop(id, exit_code, reason, /*refused=*/false, actions);
  }
  CoordinatorAction action{CoordinatorAction::Kind::kEnd};
  action.end = status;
  actions->push_back(std::move(action));
}

int Coordinator::CountWorkers() const {
  return static_cast<int>(std::count_if(peers_.begin(), peers_.end(),
                                        [](const auto& entry) { return entry.second.is_worker; }));
}

int Coordinator::CountShards() const { return static_cast<int>(peers_.size()) - CountWorkers(); }

std::string Coordinator::Missing() const {
  std::vector<std::string> missing;
  for (int shard = 0; shard < job_.cluster().servers(); ++shard) {
    const bool is_there = std::any_of(peers_.begin(), peers_.end(), [shard](const auto& entry) {
      return !entry.second.is_worker && entry.second.rank == shard;
    });
    if (!is_there) missing.push_back(absl::StrCat("shard ", shard));
  }
  const int workers = CountWorkers();
  const int wanted = job_.cluster().workers().start();
  if (workers < wanted) {
    missing.push_back(absl::StrFormat("%d of %d workers", wanted - workers, wanted));
  }
  return absl::StrJoin(missing, " and ");
}

std::string Coordinator::Describe(const Peer& peer) const {
  return absl::StrFormat("%s %d (%s)", peer.is_worker ? "worker" : "shard", peer.rank,
                         peer.registration.process());
}

bool Coordinator::AllFinished(bool workers) const {
  return std::all_of(peers_.begin(), peers_.end(), [workers](const auto& entry) {
    return entry.second.is_worker != workers || entry.second.finished;
  });
}

}  // namespace rubato
