// The coordinator's account of work: what is given out, what has been done, checkpoints, the end of
// the training and what comes after it.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "server/coordinator/coordinator.h"

namespace rubato {

using coordinator::Answer;
using coordinator::Log;
using coordinator::Outcomes;
using coordinator::Send;
using coordinator::Warn;

namespace {

// What the others are told. Cancelled: by a signal to this process.
std::string WhyStopped(const absl::Status& end) {
  return absl::StrCat(end.code() == absl::StatusCode::kCancelled ? "shard 0 was ended: " : "",
                      end.message());
}

}  // namespace

void Coordinator::OnWorkRequest(PeerId id, Peer* peer, const proto::WorkRequest& request,
                                absl::Time now, Outcomes* out) {
  if (phase_ != Phase::kRunning || sync() || !peer->is_member) return;
  work_.OnApplied(peer->worker, request.applied());
  GiveWork(id, peer, now, out);
}

void Coordinator::GiveWork(PeerId id, Peer* peer, absl::Time now, Outcomes* out) {
  proto::CoordinatorMessage message;
  proto::Work* work = message.mutable_work();
  // When it is stopping or switching, what has been given out before is the last.
  const int64_t first_new = work_.next();
  const int64_t end = draining_ ? first_new : until_unit_;
  if (const std::optional<int64_t> unit = work_.Give(peer->worker, end)) {
    if (work_.Waiting(peer->worker) == 1) peer->last_progress = now;
    work->set_contribution(*unit);
    // One that is given again may have been given in vain.
    const bool may_evaluate = *unit == first_new || asked_evaluations_.count(*unit) != 0;
    work->set_evaluate(may_evaluate && evaluate_every_->IsDue(*schedule_, mode_, *unit));
    if (work->evaluate()) asked_evaluations_[*unit] = peer->worker;
  }
  out->push_back(Send{id, std::move(message)});
}

void Coordinator::OnProgress(Peer* peer, const proto::Progress& progress, absl::Time now,
                             Outcomes* out) {
  if (!metrics_.has_value() || !peer->is_member || phase_ != Phase::kRunning) return;
  peer->last_progress = now;
  peer->staleness = progress.staleness();
  peer->clock = (sync() ? progress.unit() : progress.clock()) + 1;
  ExpectEvaluation(*peer, progress);
  if (!sync()) {
    const bool is_first =
        work_.OnComputed(peer->worker, progress.unit(), progress.clock(), progress.left_out());
    if (progress.left_out()) {
      ++skipped_;
      out->push_back(Warn{
          absl::StrFormat("contribution %d is left out: its gradient is not finite (%d so far)",
                          progress.unit(), skipped_)});
      // Else the blocks would keep a place for it for ever.
      proto::CoordinatorMessage message;
      message.mutable_left_out()->set_unit(progress.unit());
      SendToShards(message, out);
    }
    if (!is_first) return;
  }
  std::vector<MetricsLine> lines;
  const bool was_at_end = metrics_->units() >= until_unit_;
  metrics_->OnProgress(progress, now, &lines);
  if (sync() && metrics_->units() + 1 < progress.unit()) CatchUp(now, &lines);
  if (sync() && !was_at_end && metrics_->units() >= until_unit_) {
    // From now on all are waited for, those too who had nothing to compute.
    for (auto& [id, other] : registry_.peers()) other.last_progress = now;
  }
  for (const MetricsLine& line : lines) out->push_back(line);
  if (!sync() && checkpoint_every_.has_value() && metrics_->units() >= next_checkpoint_unit_) {
    checkpoint_wanted_ = true;
    next_checkpoint_unit_ = checkpoint_every_->Next(*schedule_, mode_, metrics_->units());
  }
  StartWanted(now, out);
}

void Coordinator::ExpectEvaluation(const Peer& peer, const proto::Progress& progress) {
  const int64_t unit = progress.unit();
  if (sync()) {
    const bool is_evaluator =
        progress.first_leaf() == 0 && evaluate_every_->IsDue(*schedule_, mode_, unit);
    // The result may have come first.
    if (is_evaluator && unit != last_evaluated_) evaluations_[unit] = peer.worker;
    return;
  }
  const auto asked = asked_evaluations_.find(unit);
  if (asked == asked_evaluations_.end() || !(asked->second == peer.worker)) return;
  evaluations_.insert(*asked);
  asked_evaluations_.erase(asked);
}

void Coordinator::CatchUp(absl::Time now, std::vector<MetricsLine>* lines) {
  int64_t least = until_unit_;
  for (const auto& [id, peer] : registry_.peers()) {
    if (peer.is_worker && peer.is_member && !peer.idle) least = std::min(least, peer.clock - 1);
  }
  metrics_->CatchUp(least, now, lines);
}

void Coordinator::OnIdle(PeerId id, Peer* peer, const proto::Idle& idle, absl::Time now,
                         Outcomes* out) {
  if (phase_ != Phase::kRunning || !peer->is_member || idle.view() != view_.number()) return;
  if (!sync()) {
    work_.OnApplied(peer->worker, idle.applied());
    if (work_.redo() > 0 || (!draining_ && work_.next() < until_unit_)) {
      GiveWork(id, peer, now, out);
      return;
    }
  }
  peer->idle = true;
  CheckDrained(now, out);
}

int64_t Coordinator::Position() const {
  return schedule_->SamplesBefore(sync() ? until_unit_ : work_.next());
}

void Coordinator::CheckDrained(absl::Time now, Outcomes* out) {
  if (phase_ != Phase::kRunning || training_is_over_ || view_state_ != ViewState::kOpen) return;
  for (const auto& [id, peer] : registry_.peers()) {
    if (peer.is_worker && peer.is_member && !peer.idle) return;
  }
  if (registry_.workers() == 0 || work_.redo() > 0 || work_.under_way() > 0) return;
  // What is being copied is of this lineage, and so shall its manifest be.
  if (snapshots_.copying() && snapshots_.step() <= until_unit_) return;
  std::vector<MetricsLine> lines;
  metrics_->CatchUp(sync() ? until_unit_ : work_.next(), now, &lines);
  for (const MetricsLine& line : lines) out->push_back(line);
  const int64_t position = Position();
  if (stopping_ || position >= stages_.back().until_samples) {
    EndTraining(now, out);
    return;
  }
  const ModeSpan& stage = StageAt(schedule_->SamplesBefore(schedule_->origin_unit()));
  if (asked_holds_ && position >= stage.until_samples) asked_.reset();
  new_lineage_ = true;
  ChangeView(absl::StrCat("the switch to ", ModeName(asked_.value_or(StageAt(position).mode))), now,
             out);
}

void Coordinator::EndTraining(absl::Time now, Outcomes* out) {
  if (training_is_over_) return;
  training_is_over_ = true;
  std::vector<MetricsLine> lines;
  metrics_->CloseWindow(now, &lines);
  for (const MetricsLine& line : lines) out->push_back(line);
  final_unit_ = sync() ? until_unit_ : work_.next();
  summary_.steps = metrics_->steps();
  summary_.samples = metrics_->samples();
  summary_.seconds = metrics_->Seconds(now);
  const double seconds = absl::ToDoubleSeconds(now - begin_time_);
  summary_.samples_per_second =
      seconds > 0 ? static_cast<double>(metrics_->new_samples()) / seconds : 0;
  summary_.skipped = skipped_;
  summary_.overlap = metrics_->overlap();
  summary_.work = work_.counts();
  summary_.views = view_.number();
  MaybeEnd(out);
}

void Coordinator::MaybeEnd(Outcomes* out) {
  if (phase_ != Phase::kRunning || !training_is_over_) return;
  snapshots_.Forget();
  if (snapshots_.under_way()) return;
  if (view_state_ == ViewState::kPaused) {
    const auto [lowest, highest] = LowestAndHighest();
    if (sync() && lowest != highest) {
      const std::string reason =
          "the job was stopped while too few workers were there to finish "
          "the step at hand";
      End(stop_end_.ok() ? absl::AbortedError(reason) : stop_end_, 1, reason, out);
      return;
    }
    final_unit_ = sync() ? highest : final_unit_;
  }
  if (!final_checkpoint_done_ && (job_.checkpoint().has_every() || stopping_)) {
    final_checkpoint_done_ = true;
    SendToShards(snapshots_.Announce(final_unit_, Snapshots::Phase::kTaking), out);
    return;
  }
  if (!stop_end_.ok()) {
    End(stop_end_, 1, WhyStopped(stop_end_), out);
    return;
  }
  phase_ = Phase::kEvaluating;
  AwaitEvaluations(out);
}

void Coordinator::AwaitEvaluations(Outcomes* out) {
  for (; !evaluations_.empty(); evaluations_.erase(evaluations_.begin())) {
    if (registry_.FindWorker(evaluations_.begin()->second, &evaluator_) == nullptr) continue;
    evaluating_since_ = last_tick_;
    return;
  }
  is_testing_ = true;
  Evaluate(out);
}

void Coordinator::Evaluate(Outcomes* out) {
  const std::vector<Peer*> workers = registry_.Workers();
  for (Peer* worker : workers) {
    if (!worker->is_member) continue;
    registry_.FindWorker(worker->worker, &evaluator_);
    evaluating_since_ = last_tick_;
    proto::CoordinatorMessage message;
    message.mutable_evaluation_request()->set_step(sync() ? final_unit_ : 0);
    message.mutable_evaluation_request()->set_unit(final_unit_);
    out->push_back(Send{evaluator_, std::move(message)});
    return;
  }
  out->push_back(Warn{"no worker is left to test the final parameters"});
  summary_.test_loss = std::numeric_limits<double>::quiet_NaN();
  AskForReports(out);
}

void Coordinator::OnEvaluation(const proto::EvaluationResult& evaluation, absl::Time now,
                               Outcomes* out) {
  if (!metrics_.has_value() || evaluation.samples() <= 0 || evaluation.unit() < 0) return;
  const MetricsLine line = metrics_->OnEvaluation(evaluation, now);
  out->push_back(line);
  if (evaluation.is_final()) {
    if (phase_ != Phase::kEvaluating || evaluation.unit() != final_unit_) return;
    summary_.test_loss = line.loss;
    summary_.test_accuracy = line.accuracy;
    if (has_evaluation_ && job_.evaluation().split() == proto::Evaluation::SPLIT_VALIDATION) {
      summary_.validation_loss = eval_loss_;
      summary_.validation_accuracy = eval_accuracy_;
    }
    AskForReports(out);
    return;
  }
  asked_evaluations_.erase(evaluation.unit());
  evaluations_.erase(evaluation.unit());
  if (phase_ == Phase::kEvaluating && !is_testing_) AwaitEvaluations(out);
  last_evaluated_ = evaluation.unit();
  eval_loss_ = line.loss;
  eval_accuracy_ = line.accuracy;
  has_evaluation_ = true;
  const proto::StopWhen& when = job_.train().stop_when();
  if (!job_.train().has_stop_when()) return;
  if (when.metric() == proto::METRIC_EVAL_ACCURACY && !line.accuracy.has_value()) return;
  const bool is_loss = when.metric() == proto::METRIC_EVAL_LOSS;
  const double value = is_loss ? line.loss : *line.accuracy;
  if (when.has_at_least() ? value >= when.at_least() : value <= when.at_most()) {
    On(coordinator::StopRequested{absl::OkStatus(),
                                  absl::StrFormat("the target is met: %s is %g",
                                                  is_loss ? "eval/loss" : "eval/accuracy", value)},
       now, out);
  }
}

void Coordinator::AskForReports(Outcomes* out) {
  phase_ = Phase::kReporting;
  proto::CoordinatorMessage message;
  message.mutable_report_request();
  SendToShards(message, out);
}

void Coordinator::OnShardReport(const proto::ShardReport& report, Outcomes* out) {
  if (phase_ != Phase::kReporting) return;
  summary_.duplicates += report.duplicates();
  summary_.pushed_bytes += report.pushed_bytes();
  summary_.pulled_bytes += report.pulled_bytes();
  summary_.blocks.insert(summary_.blocks.end(), report.blocks().begin(), report.blocks().end());
  if (++reports_ < job_.cluster().servers()) return;
  std::sort(summary_.blocks.begin(), summary_.blocks.end(),
            [](const auto& a, const auto& b) { return a.block() < b.block(); });
  phase_ = Phase::kCollecting;
  out->push_back(coordinator::Collect{sync() ? final_unit_ : 0});
}

void Coordinator::On(const coordinator::Collected& event, absl::Time, Outcomes* out) {
  const absl::Status& status = event.status;
  if (phase_ != Phase::kCollecting) return;
  End(status, status.ok() ? 0 : 1,
      status.ok() ? "" : absl::StrCat("shard 0 has failed: ", status.message()), out);
}

void Coordinator::On(const coordinator::StopRequested& event, absl::Time now, Outcomes* out) {
  const absl::Status& end = event.end;
  if (phase_ == Phase::kEnded) return;
  // Nothing to save, or no more patience.
  if (phase_ != Phase::kRunning || (stopping_ && !end.ok() && !stop_end_.ok())) {
    if (!end.ok()) End(end, 1, WhyStopped(end), out);
    return;
  }
  if (!end.ok()) stop_end_ = end;
  if (stopping_) return;
  stopping_ = true;
  out->push_back(
      Log{absl::StrCat("stopping: ", end.ok() ? event.reason : std::string(end.message()))});
  if (training_is_over_) return;
  if (view_state_ == ViewState::kPaused) {
    EndTraining(now, out);
  } else if (sync()) {
    cut_ = true;
    ChangeView("the stop", now, out);
  } else {
    draining_ = true;
    CheckDrained(now, out);
  }
}

void Coordinator::On(const coordinator::CheckpointRequested&, absl::Time now, Outcomes* out) {
  if (phase_ != Phase::kRunning || stopping_ || training_is_over_) {
    out->push_back(Answer{absl::UnavailableError("the job is not training")});
    return;
  }
  out->push_back(Answer{""});
  checkpoint_wanted_ = true;
  StartWanted(now, out);
}

void Coordinator::StartWanted(absl::Time now, Outcomes* out) {
  if (phase_ != Phase::kRunning || !checkpoint_wanted_ || stopping_ || training_is_over_) return;
  if (snapshots_.under_way() && snapshots_.phase() != Snapshots::Phase::kAnnounced) return;
  if (sync()) {
    ChangeView("a checkpoint", now, out);  // which is announced when it opens
    return;
  }
  if (new_lineage_) return;  // this one is over: as soon as the next has begun
  checkpoint_wanted_ = false;
  SendToShards(snapshots_.Announce(0, Snapshots::Phase::kTaking), out);
}

void Coordinator::ScheduleSnapshot(int64_t after, Outcomes* out) {
  if (!sync() || !checkpoint_every_.has_value() || stopping_ || training_is_over_ ||
      snapshots_.under_way()) {
    return;
  }
  const int64_t step = checkpoint_every_->Next(*schedule_, mode_, after);
  // The end of the training has one of its own.
  const bool is_last = schedule_->SamplesBefore(until_unit_) >= stages_.back().until_samples;
  if (step > until_unit_ || (step == until_unit_ && is_last)) return;
  SendToShards(snapshots_.Announce(step, Snapshots::Phase::kAnnounced), out);
}

proto::Manifest Coordinator::MakeManifest() const {
  proto::Manifest manifest;
  manifest.set_format(1);
  manifest.set_version(version_);
  manifest.set_job_digest(job_digest_);
  manifest.set_seed(job_.seed());
  manifest.set_mode(view_.mode());
  manifest.set_data_digest(registry_.model().data_digest());
  int64_t samples = 0;
  for (const auto& [index, block] : snapshots_.blocks()) {
    *manifest.add_blocks() = block;
    samples = std::max(samples, block.samples());
  }
  manifest.set_step(sync() ? snapshots_.step() : work_.next());
  manifest.set_samples(samples);
  manifest.set_samples_per_epoch(view_.samples_per_epoch());
  manifest.set_epoch(static_cast<double>(samples) / view_.samples_per_epoch());
  manifest.set_origin_unit(view_.origin_unit());
  manifest.set_origin_samples(view_.origin_samples());
  manifest.set_unit_samples(job_.train().batch_size() / job_.train().micro_batches() *
                            view_.leaves());
  manifest.set_block_values(ValuesPerBlock(job_));
  manifest.set_seconds(metrics_->last_seconds());
  if (summary_.residuals_lost.has_value()) manifest.set_residuals(registry_.workers());
  if (has_evaluation_) {
    manifest.set_eval_loss(eval_loss_);
    if (eval_accuracy_.has_value()) manifest.set_eval_accuracy(*eval_accuracy_);
  }
  return manifest;
}

void Coordinator::On(const coordinator::Checkpointed& event, absl::Time now, Outcomes* out) {
  const absl::StatusOr<std::string>& path = event.path;
  proto::CoordinatorMessage message;
  message.mutable_release_snapshot()->set_id(event.snapshot);
  SendToShards(message, out);
  if (path.ok()) {
    last_checkpoint_ = *path;
    out->push_back(Log{absl::StrCat("checkpoint ", *path)});
  } else if (!checkpoint_failed_) {  // one warning until there is one again
    out->push_back(Warn{
        absl::StrFormat("no checkpoint of step %d: %s; training goes on, the last good one is %s",
                        snapshots_.step(), path.status().message(),
                        last_checkpoint_.empty() ? "none" : last_checkpoint_)});
  }
  checkpoint_failed_ = !path.ok();
  if (phase_ == Phase::kEnded) return;
  snapshots_.Clear();
  if (!diverged_.empty()) {
    EndDiverged(out);
    return;
  }
  StartWanted(now, out);
  ScheduleSnapshot(std::max(snapshots_.step(), metrics_->units()), out);
  MaybeEnd(out);
}

proto::JobStatus Coordinator::Status(absl::Time now) const {
  proto::JobStatus status;
  static constexpr const char* kNames[] = {"waiting for the others",
                                           "beginning",
                                           "restoring",
                                           "training",
                                           "testing",
                                           "ending",
                                           "ending",
                                           "over"};
  status.set_state(kNames[static_cast<int>(phase_)]);
  status.set_shards(registry_.shards());
  status.set_last_checkpoint(last_checkpoint_);
  if (phase_ == Phase::kGathering) {
    status.add_waits(absl::StrCat("the start waits for ", registry_.Missing()));
  }
  for (const auto& [id, peer] : registry_.peers()) {
    if (!peer.is_worker) continue;
    proto::JobStatus::Member* member = status.add_members();
    member->set_rank(peer.worker.rank);
    member->set_incarnation(peer.worker.incarnation);
    member->set_process(peer.registration.process());
    member->set_clock(peer.clock);
    member->set_staleness(peer.staleness);
    member->set_seconds_silent(absl::ToDoubleSeconds(now - peer.last_heard));
    member->set_seconds_idle(absl::ToDoubleSeconds(now - peer.last_progress));
  }
  if (!metrics_.has_value()) return status;
  status.set_view(view_.number());
  status.set_lineage(view_.lineage());
  status.set_mode(ModeName(mode_));
  status.set_staleness(mode_.staleness);
  status.set_step(metrics_->steps());
  status.set_samples(metrics_->samples());
  status.set_epoch(static_cast<double>(metrics_->samples()) / view_.samples_per_epoch());
  const double seconds = absl::ToDoubleSeconds(now - begin_time_);
  if (seconds > 0) status.set_samples_per_second(metrics_->new_samples() / seconds);
  const WorkCounts& counts = work_.counts();
  proto::JobStatus::Ledger* ledger = status.mutable_ledger();
  ledger->set_given(counts.given);
  ledger->set_applied(counts.applied);
  ledger->set_left_out(counts.left_out);
  ledger->set_partial(counts.partial);
  ledger->set_lost(counts.lost);
  ledger->set_under_way(work_.under_way());
  if (asked_.has_value() && !asked_holds_) status.set_next_mode(ModeName(*asked_));
  const auto evaluator = registry_.peers().find(evaluator_);
  if (phase_ == Phase::kEvaluating && evaluator != registry_.peers().end()) {
    status.add_waits(absl::StrFormat(
        "%s waits for worker %d, for %.1f s",
        is_testing_ ? "the final test" : "a test of earlier parameters",
        evaluator->second.worker.rank, absl::ToDoubleSeconds(now - evaluating_since_)));
  }
  if (phase_ != Phase::kRunning || training_is_over_) return status;
  if (view_state_ == ViewState::kPaused) {
    status.set_state("paused");
    const int missing = job_.cluster().workers().min() - registry_.workers();
    status.add_waits(absl::StrFormat("training waits for %d more worker%s (cluster.workers.min)",
                                     missing, missing == 1 ? "" : "s"));
    return status;
  }
  if (view_state_ == ViewState::kClosing) {
    for (int shard = 0; shard < job_.cluster().servers(); ++shard) {
      if (closed_.count(shard) != 0) continue;
      status.add_waits(absl::StrFormat("view %d waits for shard %d to close view %d",
                                       view_.number() + 1, shard, view_.number()));
    }
  }
  for (const WorkerId& worker : WaitedFor()) {
    for (const auto& [id, peer] : registry_.peers()) {
      if (!peer.is_worker || !(peer.worker == worker)) continue;
      const double silent = absl::ToDoubleSeconds(now - peer.last_progress);
      if (sync() ? metrics_->units() >= until_unit_ : work_.Waiting(worker) == 0) {
        status.add_waits(absl::StrFormat("worker %d is to finish what it has begun, for %.1f s",
                                         worker.rank, silent));
      } else if (sync()) {
        status.add_waits(absl::StrFormat("step %d waits for worker %d, for %.1f s",
                                         metrics_->units(), worker.rank, silent));
      } else {
        status.add_waits(absl::StrFormat("worker %d computes clock %d, for %.1f s", worker.rank,
                                         peer.clock, silent));
      }
    }
  }
  return status;
}

}  // namespace rubato
