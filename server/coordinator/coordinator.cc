#include "server/coordinator/coordinator.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "server/optimizers/parameter_groups.h"

namespace rubato {

using coordinator::Journal;
using coordinator::Log;
using coordinator::Outcomes;
using coordinator::Restore;
using coordinator::Send;
using coordinator::SendStop;
using coordinator::Warn;
using coordinator::WriteCheckpoint;

namespace {

// Exit codes (docs/design.md): repeating cannot help / anything else.
constexpr int kExitUsage = 2;
constexpr int kExitFailure = 1;

proto::Stop MakeStop(int exit_code, const std::string& reason) {
  proto::Stop stop;
  stop.set_exit_code(exit_code);
  stop.set_reason(reason);
  return stop;
}

proto::Stop MakeRefusal(int exit_code, const std::string& reason) {
  proto::Stop stop = MakeStop(exit_code, reason);
  stop.set_refused(true);
  return stop;
}

}  // namespace

Coordinator::Coordinator(const proto::Job& job, std::string job_digest, std::string version,
                         std::optional<proto::Manifest> resume, bool initial, absl::Time now)
    : job_(job),
      job_digest_(job_digest),
      version_(version),
      deadline_(now + absl::Seconds(job.cluster().start_timeout())),
      lease_(absl::Seconds(job.cluster().lease())),
      registry_(job, std::move(job_digest), std::move(version)),
      last_tick_(now),
      resume_(std::move(resume)),
      initial_(initial),
      snapshots_(job.cluster().servers()) {
  if (job.wire().push().codec() == proto::Push::CODEC_TOPK) {
    summary_.residuals_lost = resume_.has_value() ? resume_->residuals() : 0;
  }
}

Outcomes Coordinator::Handle(const coordinator::Event& event, absl::Time now) {
  Outcomes out;
  std::visit([&](const auto& kind) { On(kind, now, &out); }, event);
  return out;
}

void Coordinator::On(const coordinator::FromPeer& event, absl::Time now, Outcomes* out) {
  const PeerId id = event.peer;
  const proto::PeerMessage& message = event.message;
  if (phase_ == Phase::kEnded) return;
  if (message.has_registration()) {
    OnRegistration(id, message.registration(), now, out);
    return;
  }
  Peer* const peer = registry_.Find(id);
  if (peer == nullptr) {
    out->push_back(SendStop(
        id, MakeRefusal(kExitFailure,
                        "this process is not registered: a call begins with a registration")));
    return;
  }
  peer->last_heard = now;
  switch (message.kind_case()) {
    case proto::PeerMessage::kShardOpened:
      OnShardOpened(peer, now, out);
      break;
    case proto::PeerMessage::kWorkRequest:
      OnWorkRequest(id, peer, message.work_request(), now, out);
      break;
    case proto::PeerMessage::kProgress:
      OnProgress(peer, message.progress(), now, out);
      break;
    case proto::PeerMessage::kEvaluation:
      OnEvaluation(message.evaluation(), now, out);
      break;
    case proto::PeerMessage::kIdle:
      OnIdle(id, peer, message.idle(), now, out);
      break;
    case proto::PeerMessage::kShardReport:
      OnShardReport(message.shard_report(), out);
      break;
    case proto::PeerMessage::kShardRestored:
      if (phase_ == Phase::kRestoring && ++restored_ == job_.cluster().servers()) {
        BeginTraining(now, out);
      }
      break;
    case proto::PeerMessage::kShardClosed:
      OnShardClosed(*peer, message.shard_closed(), now, out);
      break;
    case proto::PeerMessage::kSnapshotCopied:
      if (snapshots_.OnCopied(message.snapshot_copied())) {
        out->push_back(WriteCheckpoint{snapshots_.id(), MakeManifest()});
        CheckDrained(now, out);
      }
      break;
    case proto::PeerMessage::kSnapshotMissed:
      if (snapshots_.OnMissed(message.snapshot_missed())) {
        ScheduleSnapshot(message.snapshot_missed().version(), out);
        CheckDrained(now, out);
      }
      break;
    case proto::PeerMessage::kShardMeasured:
      OnShardMeasured(message.shard_measured(), out);
      break;
    case proto::PeerMessage::kStopRequest:
      On(coordinator::StopRequested{absl::AbortedError(absl::StrCat(
                                        Describe(*peer),
                                        " was ended: ", message.stop_request().reason())),
                                    ""},
         now, out);
      break;
    case proto::PeerMessage::kLeave:
      if (!peer->is_worker) break;
      out->push_back(SendStop(id, MakeStop(0, "it has left")));
      work_.OnApplied(peer->worker, message.leave().applied());
      work_.OnLeaving(peer->worker);
      peer->leaves = true;
      Lose(id, absl::StrCat("leaves: ", message.leave().reason()), now, out);
      break;
    case proto::PeerMessage::kFailure:
      OnFailureMessage(id, *peer, message.failure(), now, out);
      break;
    default:
      break;  // of a later version
  }
}

void Coordinator::OnFailureMessage(PeerId id, const Peer& peer, const proto::Failure& failure,
                                   absl::Time now, Outcomes* out) {
  const std::string reason = absl::StrCat(Describe(peer), " failed: ", failure.reason());
  if (failure.non_finite()) {
    OnDiverged(id, failure.reason(), out);
    return;
  }
  if (peer.is_worker && phase_ >= Phase::kRunning) {
    Lose(id, absl::StrCat("failed: ", failure.reason()), now, out);
    return;
  }
  End(failure.exit_code() == kExitUsage ? absl::FailedPreconditionError(reason)
                                        : absl::AbortedError(reason),
      failure.exit_code(), reason, out);
}

void Coordinator::OnRegistration(PeerId id, const proto::Registration& registration, absl::Time now,
                                 Outcomes* out) {
  if (registry_.Find(id) != nullptr) return;
  const proto::Workers& workers = job_.cluster().workers();
  absl::Status status =
      registry_.Check(registration, phase_ == Phase::kGathering ? workers.start() : workers.max());
  if (status.ok() && (phase_ > Phase::kRunning || training_is_over_)) {
    status = absl::UnavailableError("the training is over");
  }
  if (!status.ok()) {
    out->push_back(Warn{absl::StrCat("refused ", registration.process(), ": ", status.message())});
    out->push_back(SendStop(
        id, MakeRefusal(status.code() == absl::StatusCode::kUnavailable ? kExitFailure : kExitUsage,
                        std::string(status.message()))));
    return;
  }
  const Peer* peer = registry_.Add(id, registration, now, out);
  if (phase_ == Phase::kGathering) {
    MaybeBegin(/*deadline_passed=*/false, now, out);
    if (phase_ == Phase::kGathering) {
      out->push_back(
          Log{absl::StrCat(Describe(*peer), " is here; waiting for ", registry_.Missing())});
    }
  } else if (phase_ == Phase::kRunning) {
    ChangeView(absl::StrCat(Describe(*peer), " joins"), now, out);
  }
}

void Coordinator::MaybeBegin(bool deadline_passed, absl::Time now, Outcomes* out) {
  if (phase_ != Phase::kGathering) return;
  const proto::Workers& workers = job_.cluster().workers();
  const std::string timeout = absl::FormatDuration(absl::Seconds(job_.cluster().start_timeout()));
  const bool all_shards = registry_.shards() == job_.cluster().servers();
  if (all_shards && registry_.workers() == workers.start()) {
    OpenFirst(now, out);
  } else if (deadline_passed && all_shards && registry_.workers() >= workers.min()) {
    out->push_back(
        Warn{absl::StrFormat("begins with %d of %d workers: the others have not come within %s",
                             registry_.workers(), workers.start(), timeout)});
    OpenFirst(now, out);
  } else if (deadline_passed) {
    const std::string reason = absl::StrFormat("waited %s at %s: %s did not come", timeout,
                                               job_.cluster().address(), registry_.Missing());
    End(absl::DeadlineExceededError(reason), kExitFailure, reason, out);
  }
}

void Coordinator::OpenFirst(absl::Time now, Outcomes* out) {
  const proto::WorkerRegistration& model = registry_.model();
  const int64_t n = model.train_samples();
  stages_ = ModesOf(job_, n);
  evaluate_every_.emplace(job_.evaluation().every(), job_, n);
  if (job_.checkpoint().every().has_time()) {
    checkpoint_every_time_ = absl::Seconds(job_.checkpoint().every().time());
  } else if (job_.checkpoint().has_every()) {
    checkpoint_every_.emplace(job_.checkpoint().every(), job_, n);
  }
  view_.set_samples_per_epoch(n);
  *view_.mutable_layout() = model.layout();
  placement_ = Placement::Even(SpaceOf(job_, view_.layout()), job_.cluster().servers());
  placement_->AddTo(&view_);
  for (const auto& [id, peer] : registry_.peers()) {
    if (peer.is_worker) continue;
    view_.mutable_shards(peer.worker.rank)->set_address(peer.registration.address());
  }
  verdicts_.emplace(job_, *placement_, TrainableCount(view_.layout()));
  if (resume_.has_value()) {
    if (const absl::Status status = CheckResume(model); !status.ok()) {
      End(status, kExitUsage, std::string(status.message()), out);
      return;
    }
    BeginFromCheckpoint();
  } else {
    BeginLineage(StageAt(0).mode, 0, 0);
  }
  const int64_t first = sync() ? schedule_->origin_unit() : 0;
  if (sync()) {
    std::vector<WorkerId> members;
    for (const Peer* worker : registry_.Workers()) members.push_back(worker->worker);
    assignments_->Change(first, first, members);
  }
  view_.set_number(1);
  FillView(first);
  AddMembers(/*is_new_lineage=*/true);
  const int64_t spare = registry_.workers() - job_.train().micro_batches();
  if (sync() && spare > 0) {
    out->push_back(
        Warn{absl::StrFormat("%d of %d workers have nothing to compute: train.micro_batches is %d",
                             spare, registry_.workers(), job_.train().micro_batches())});
  }
  for (std::string& group : UnusedGroups(job_.optimizer(), view_.layout())) {
    out->push_back(Warn{std::move(group)});
  }
  phase_ = Phase::kOpening;
  reason_ = "the start";
  last_tick_ = now;
  proto::CoordinatorMessage message;
  *message.mutable_view() = view_;
  SendToShards(message, out);
}

absl::Status Coordinator::CheckResume(const proto::WorkerRegistration& worker) const {
  if (resume_->data_digest() != worker.data_digest()) {
    return absl::FailedPreconditionError(
        absl::StrFormat("the checkpoint was made on other data: digests %s, now %s",
                        resume_->data_digest().substr(0, 12), worker.data_digest().substr(0, 12)));
  }
  if (resume_->mode() == proto::View::MODE_SYNC) return absl::OkStatus();
  const int64_t unit_samples = job_.train().batch_size() / job_.train().micro_batches() *
                               LeavesOf(job_, {proto::View::MODE_ASYNC, 0});
  if (resume_->unit_samples() != unit_samples) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "the checkpoint counts in contributions of %d samples, this job in contributions of %d: "
        "train.batch_size, train.micro_batches and cluster.workers.start must stay as they were",
        resume_->unit_samples(), unit_samples));
  }
  if (resume_->block_values() != ValuesPerBlock(job_)) {
    return absl::FailedPreconditionError(
        "wire.chunk must stay as it was: on arrival each block has its own history");
  }
  return absl::OkStatus();
}

// In sync all blocks are at one version. On arrival some may lack contributions that others hold:
// those are done first, and in the same numbers.
void Coordinator::BeginFromCheckpoint() {
  if (resume_->mode() == proto::View::MODE_SYNC) {
    BeginLineage(StageAt(resume_->samples()).mode, resume_->step(), resume_->samples());
    return;
  }
  std::vector<int64_t> redo;
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
      redo.push_back(unit);
    }
  }
  const Mode wanted = StageAt(resume_->samples()).mode;
  const Mode before{resume_->mode(), wanted.staleness};
  BeginLineage(wanted.on_arrival() ? wanted : before, resume_->origin_unit(),
               resume_->origin_samples());
  work_ = WorkLedger(resume_->step(), redo);
  draining_ = !wanted.on_arrival();
}

const ModeSpan& Coordinator::StageAt(int64_t samples) const {
  for (const ModeSpan& stage : stages_) {
    if (samples < stage.until_samples) return stage;
  }
  return stages_.back();
}

void Coordinator::BeginLineage(const Mode& mode, int64_t origin_unit, int64_t origin_samples) {
  mode_ = mode;
  view_.set_lineage(view_.lineage() + 1);
  schedule_.emplace(ScheduleOf(job_, mode, view_.samples_per_epoch(), origin_unit, origin_samples));
  until_unit_ = schedule_->UnitsFor(StageAt(origin_samples).until_samples);
  assignments_.emplace(schedule_->leaves());
  work_.Restart(origin_unit);
  draining_ = cut_ = new_lineage_ = false;
}

void Coordinator::FillView(int64_t from_step) {
  view_.set_mode(mode_.mode);
  view_.set_staleness(mode_.staleness);
  view_.set_leaves(schedule_->leaves());
  view_.set_origin_unit(schedule_->origin_unit());
  view_.set_origin_samples(schedule_->SamplesBefore(schedule_->origin_unit()));
  view_.set_from_step(from_step);
  view_.set_until_step(until_unit_);
  view_.set_verdict_steps(sync() &&
                          (job_.optimizer().has_clip_grad_norm() ||
                           job_.train().on_non_finite() == proto::Train::ON_NON_FINITE_SKIP));
  view_.clear_assignments();
  if (sync()) assignments_->AddTo(&view_);
}

void Coordinator::SendToShards(const proto::CoordinatorMessage& message, Outcomes* out) {
  for (const auto& [id, peer] : registry_.peers()) {
    if (!peer.is_worker) out->push_back(Send{id, message});
  }
}

void Coordinator::OnShardOpened(Peer* peer, absl::Time now, Outcomes* out) {
  if (phase_ != Phase::kOpening || peer->is_worker) return;
  peer->opened = true;
  for (const auto& [id, other] : registry_.peers()) {
    if (!other.is_worker && !other.opened) return;
  }
  if (resume_.has_value() || initial_) {
    phase_ = Phase::kRestoring;
    SendRestore(out);
  } else {
    BeginTraining(now, out);
  }
}

void Coordinator::SendRestore(Outcomes* out) {
  std::map<int64_t, const proto::BlockState*> states;
  if (resume_.has_value()) {
    for (const proto::BlockState& block : resume_->blocks()) states[block.block()] = &block;
  }
  for (const auto& [id, peer] : registry_.peers()) {
    if (peer.is_worker) continue;
    proto::CoordinatorMessage message;
    proto::Restore* restore = message.mutable_restore();
    if (resume_.has_value()) restore->set_slots(resume_->slots_size());
    const Range blocks = placement_->Blocks(peer.worker.rank);
    for (int64_t block = blocks.begin; block < blocks.end; ++block) {
      proto::BlockState* state = restore->add_blocks();
      if (resume_.has_value() && resume_->mode() == proto::View::MODE_SYNC) {
        // All blocks are at one version, so they may be cut anew; units count from here.
        *state = resume_->blocks(0);
        state->set_units_below(resume_->step());
      } else if (resume_.has_value() && states.count(block) != 0) {
        *state = *states[block];
      }
      state->set_block(block);
    }
    out->push_back(Send{id, std::move(message)});
  }
  out->push_back(Restore{});
}

void Coordinator::BeginTraining(absl::Time now, Outcomes* out) {
  phase_ = Phase::kRunning;
  begin_time_ = last_snapshot_time_ = now;
  seconds_before_ = resume_.has_value() ? resume_->seconds() : 0;
  metrics_.emplace(job_, view_.samples_per_epoch(), now - absl::Seconds(seconds_before_), now);
  const int64_t done = sync() ? schedule_->origin_unit() : work_.next() - work_.redo();
  metrics_->Begin(sync(), *schedule_, done);
  next_checkpoint_unit_ =
      checkpoint_every_.has_value() ? checkpoint_every_->Next(*schedule_, mode_, done) : 0;
  out->push_back(Log{absl::StrFormat(
      "training %s: %d workers, %d shards, %d parameters, %s",
      resume_.has_value() ? absl::StrCat("goes on at ", done) : "begins", view_.members_size(),
      view_.shards_size(), ValueCount(view_.layout()), ModeName(mode_))});
  ScheduleSnapshot(done, out);
  // Not to the shards: they have it.
  SendView(now, out);
  // Who has come or gone in the meantime.
  for (const auto& [id, peer] : registry_.peers()) {
    if (peer.is_worker && !peer.is_member) {
      ChangeView(absl::StrCat(Describe(peer), " joins"), now, out);
      break;
    }
  }
  if (!lost_.empty()) ChangeView("workers were lost", now, out);
}

// To the workers that are its members.
void Coordinator::SendView(absl::Time now, Outcomes* out) {
  out->push_back(Journal{view_, std::exchange(reason_, "")});
  for (const proto::Member& member : view_.members()) {
    PeerId id;
    Peer* const worker = registry_.FindWorker({member.rank(), member.incarnation()}, &id);
    if (worker == nullptr) continue;
    // Only members send heartbeats; one that has fallen silent is no younger by a new view.
    if (!worker->is_member) worker->last_heard = now;
    worker->last_progress = now;
    worker->is_member = true;
    worker->idle = false;
    proto::CoordinatorMessage message;
    *message.mutable_view() = view_;
    message.mutable_view()->set_your_rank(member.rank());
    out->push_back(Send{id, std::move(message)});
  }
}

void Coordinator::OnShardMeasured(const proto::ShardMeasured& measured, Outcomes* out) {
  if (!verdicts_.has_value()) return;
  const std::optional<Verdicts::Decision> decision = verdicts_->OnMeasured(measured);
  if (!decision.has_value()) return;
  if (decision->non_finite >= 0) {
    const std::string parameter = ParameterAt(view_.layout(), decision->non_finite);
    if (job_.train().on_non_finite() == proto::Train::ON_NON_FINITE_STOP) {
      // Each worker's own sums are finite, or it would have said so.
      OnDiverged(
          kOwnShard,
          absl::StrFormat("step %d: the gradient of %s, summed over the workers, is not finite",
                          measured.step(), parameter),
          out);
      return;
    }
    ++skipped_;
    out->push_back(
        Warn{absl::StrFormat("step %d is left out: the gradient of %s is not finite (%d so far)",
                             measured.step(), parameter, skipped_)});
  }
  proto::CoordinatorMessage message;
  *message.mutable_verdict() = decision->verdict;
  SendToShards(message, out);
}

void Coordinator::OnDiverged(PeerId peer, const std::string& reason, Outcomes* out) {
  if (!diverged_.empty()) return;
  diverged_ = reason;
  diverged_peer_ = peer;
  if (snapshots_.phase() != Snapshots::Phase::kWriting) EndDiverged(out);
}

void Coordinator::EndDiverged(Outcomes* out) {
  std::string reason = absl::StrCat(
      diverged_, "; ",
      last_checkpoint_.empty() ? "there is no checkpoint"
                               : absl::StrCat("the last good checkpoint is ", last_checkpoint_));
  const Peer* const culprit =
      diverged_peer_ == kOwnShard ? nullptr : registry_.Find(diverged_peer_);
  if (culprit != nullptr) {
    out->push_back(SendStop(diverged_peer_, MakeRefusal(kExitFailure, reason)));
    reason = absl::StrCat(Describe(*culprit), " failed: ", reason);
  }
  End(absl::AbortedError(reason), kExitFailure, reason, out);
}

void Coordinator::On(const coordinator::PeerGone& event, absl::Time now, Outcomes* out) {
  const PeerId id = event.peer;
  const Peer* const peer = registry_.Find(id);
  if (peer == nullptr || phase_ == Phase::kEnded) return;
  const std::string who = Describe(*peer);
  if (phase_ == Phase::kGathering) {
    out->push_back(Warn{absl::StrCat(who, " has left before the start")});
    registry_.Remove(id);
    return;
  }
  const std::string why = absl::StrFormat("is gone: its connection broke at step %d",
                                          metrics_.has_value() ? metrics_->steps() : 0);
  if (peer->is_worker) {
    Lose(id, why, now, out);
    return;
  }
  const std::string reason = absl::StrCat(who, " ", why);
  registry_.Remove(id);
  End(absl::AbortedError(reason), kExitFailure, reason, out);
}

void Coordinator::On(const coordinator::Tick&, absl::Time now, Outcomes* out) {
  CheckLeases(now, out);
  last_tick_ = now;
  if (phase_ == Phase::kGathering && now >= deadline_) {
    MaybeBegin(/*deadline_passed=*/true, now, out);
  }
  if (phase_ != Phase::kRunning) return;
  if (now - last_snapshot_time_ >= checkpoint_every_time_) {
    last_snapshot_time_ = now;
    checkpoint_wanted_ = true;
  }
  StartWanted(now, out);
  const proto::Point& until = job_.train().until();
  if (until.has_time() && !stopping_ && metrics_->Seconds(now) >= until.time()) {
    On(coordinator::StopRequested{absl::OkStatus(), "train.until has been reached"}, now, out);
  }
}

void Coordinator::On(const coordinator::Failed& event, absl::Time, Outcomes* out) {
  if (phase_ == Phase::kEnded) return;
  End(event.status, kExitFailure, absl::StrCat("shard 0 has failed: ", event.status.message()),
      out);
}

void Coordinator::End(const absl::Status& status, int exit_code, const std::string& reason,
                      Outcomes* out) {
  const bool was_training = phase_ >= Phase::kRunning;
  phase_ = Phase::kEnded;
  if (was_training && !status.ok() && !last_checkpoint_.empty() && diverged_.empty()) {
    out->push_back(Log{absl::StrCat("the last good checkpoint is ", last_checkpoint_,
                                    "; go on with: rubato train --resume ", last_checkpoint_)});
  }
  for (const auto& [id, peer] : registry_.peers()) {
    if (id != kOwnShard) out->push_back(SendStop(id, MakeStop(exit_code, reason)));
  }
  out->push_back(coordinator::End{status});
}

}  // namespace rubato
