// The coordinator's views: the first one, each change, and what follows the last.
#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/job/is_script.h"
#include "common/job/job.h"
#include "common/space/modes.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/kept_values.h"
#include "server/optimizers/parameter_groups.h"

namespace rubato {

using coordinator::Journal;
using coordinator::Log;
using coordinator::Send;
using coordinator::SendStop;
using coordinator::Warn;

void Coordinator::Gather() {
  if (ending_.stopping()) return;
  const absl::StatusOr<bool> is_ready =
      starting_.IsReady(registry_, !lasting_.stop().empty(), now_, &out_);
  if (!is_ready.ok()) {
    End(is_ready.status(), ExitCode(is_ready.status()), std::string(is_ready.status().message()));
  } else if (*is_ready && HasFirstValues()) {
    OpenFirstView();
  }
}

void Coordinator::CheckReaders() {
  const std::optional<ShardId> late = starting_.LateReader(now_);
  PeerId id;
  if (!late.has_value() || registry_.FindShard(late->number, &id) == nullptr) return;
  LoseShard(id, absl::StrFormat("has not read its part of %s within %s: its disk, or its way to "
                                "the folder, stands still",
                                checkpoints_.last(), absl::FormatDuration(starting_.patience())));
}

bool Coordinator::HasFirstValues() {
  const proto::Layout& layout = registry_.model().layout();
  if (!layout.gives_values() || !starting_.lacks_values()) return true;
  if (!first_values_.Fetch(registry_, &out_)) return false;
  starting_.OnInitialValues();
  return true;
}

void Coordinator::On(const coordinator::ValuesSaved& event) {
  if (!event.status.ok()) {
    On(coordinator::Failed{event.status});
  } else {
    first_values_.OnSaved(&out_);
    if (starting_.state() == Starting::State::kGathering && !is_over_) Gather();
  }
}

void Coordinator::CountLastSwitches() {
  const uint32_t last = LastLineage(lasting_.begun_term(), registry_);
  if (!lasting_.has_lineage() || last <= lasting_.lineage()) return;
  summary_.switches += last - lasting_.lineage();
  lasting_.set_switches(summary_.switches);
  lasting_.set_lineage(last);
  Keep();  // before a shard forgets it
}

void Coordinator::DecideOnKept() {
  if (before_.term() <= 1) return;
  absl::StatusOr<KeptTerm> kept = KeptByAll(job_, before_, *placement_, registry_);
  if (kept.ok()) {
    starting_.GoOnWith(kept->manifest);
    CountLastSwitches();
    kept_decisions_ = std::move(kept->decisions);
    view_.set_kept_term(lasting_.begun_term());
    return;
  }
  why_not_kept_ = std::string(kept.status().message());
  summary_.samples_rolled_back += std::max<int64_t>(0, before_.samples() - first_samples());
}

void Coordinator::OpenFirstView() {
  const proto::WorkerRegistration& model = registry_.model();
  const proto::Job job = WithOptimizerOf(model.layout(), job_);
  const std::optional<proto::Manifest>& resume = starting_.resume();
  view_.set_samples_per_epoch(model.train_samples());
  *view_.mutable_layout() = model.layout();
  registry_.KeepModel();
  lasting_.set_data_digest(model.data_digest());
  placement_ = Placement::Even(SpaceOf(job_, view_.layout()), job_.cluster().servers());
  placement_->AddTo(&view_);
  registry_.AddShards(&view_);
  DecideOnKept();
  if (resume.has_value()) {
    absl::Status status = starting_.CheckResume(model);
    if (status.ok() && IsScript(job_)) status = starting_.MatchOptimizer(job, &out_);
    if (!status.ok()) {
      End(status, kExitUsage, std::string(status.message()));
      return;
    }
  }
  if (!lasting_.stop().empty()) {
    ending_.Stop(absl::OkStatus());
    const bool is_short = first_samples() < TotalSamples(job, model.train_samples());
    if (is_short) summary_.stopped = lasting_.stop();
  }
  decisions_.emplace(job, *placement_, registry_.Shards(), TrainableCount(view_.layout()));
  evaluations_.emplace(job_, model.train_samples());
  work_.emplace(job, model.train_samples(), resume, lasting_, policies_);
  if (starting_.is_kept() &&
      OnArrival(work_->lineage().mode()) == OnArrival(FromManifest(resume->mode()))) {
    for (const proto::Decision& decision : kept_decisions_) {
      decisions_->Keep(decision);
      if (!decision.verdict().apply()) work_->Skip();  // by those who have not done so yet
    }
  }
  view_.set_number(1);
  view_.set_term(before_.term());
  work_->OpenFirstView(registry_.WorkerIds(), &view_);
  work_->AddMembers(change_, /*is_new_lineage=*/true, &registry_, &view_);
  for (const std::string& warning :
       {IdleWorkers(job_, view_.mode(), registry_.workers()),
        ShortUnits(job_, view_.mode(), view_.samples_per_epoch()), IdleServers(*placement_)}) {
    if (!warning.empty()) out_.push_back(Warn{warning});
  }
  for (std::string& group : UnusedGroups(job.optimizer(), view_.layout())) {
    out_.push_back(Warn{std::move(group)});
  }
  change_.AddReason(before_.term() <= 1   ? "the start"
                    : starting_.is_kept() ? absl::StrCat("goes on after: ", before_.reason())
                                          : absl::StrCat("back after: ", before_.reason()));
  if (starting_.restores()) view_.set_restore_key(restore_key_);
  starting_.Open(view_, registry_, &out_);
}

void Coordinator::BeginTraining() {
  view_.clear_restore_key();
  view_.clear_kept_term();
  if (view_.layout().has_optimizer()) {  // the shards have them, and nobody else needs them
    view_.mutable_layout()->mutable_optimizer()->mutable_schedule()->clear_factors();
  }
  const std::optional<proto::Manifest>& resume = starting_.resume();
  work_->BeginTraining(resume.has_value() ? resume->seconds() : 0, now_);
  checkpoints_.BeginTraining(view_.samples_per_epoch(), *work_, now_);
  out_.push_back(Log{absl::StrFormat(
      "training %s: %d workers, %d shards, %d parameters, %s",
      resume.has_value()
          ? absl::StrCat("goes on at ", UnitText(FromManifest(resume->mode()), work_->done()))
          : "begins",
      view_.members_size(), view_.shards_size(), ValueCount(view_.layout()),
      ModeName(work_->lineage().mode()))});
  if (before_.term() > 1) TellOfGoingBack();
  AnnounceCheckpoint(work_->done());
  const proto::WorkerRegistration& model = registry_.model();
  if (model.has_data()) out_.push_back(coordinator::SaveData{model.data()});
  SendViewToWorkers();  // the shards have it
  // Who has come or gone in the meantime.
  for (const Peer* worker : registry_.Workers()) {
    if (!worker->is_member) change_.AddReason(absl::StrCat(Describe(*worker), " joins"));
  }
  LetJoin();
  if (!change_.lost().empty()) ChangeView("workers were lost");
  if (ending_.stopping()) EndLineage("the stop");
}

void Coordinator::TellOfGoingBack() {
  const std::string pause = absl::StrFormat("training stood still for %.1f s",
                                            absl::ToDoubleSeconds(now_ - begun_ + stood_still_));
  if (starting_.is_kept()) {
    out_.push_back(Warn{absl::StrFormat(
        "goes on at step %d after %s; all shards have kept their values, nothing is trained again; "
        "%s",
        work_->metrics().steps(), before_.reason(), pause)});
    return;
  }
  const std::string& from = checkpoints_.last();
  out_.push_back(Warn{absl::StrFormat(
      "went back to step %d (%s) because %s; %d samples are trained again: %s; %s; nothing is to "
      "be done, and the next loss costs less with a shorter checkpoint.every",
      work_->metrics().steps(), from.empty() ? "the beginning" : from, before_.reason(),
      std::max<int64_t>(0, before_.samples() - work_->metrics().samples()), why_not_kept_, pause)});
}

void Coordinator::ChangeView(const std::string& reason) {
  if (!is_training()) return;
  change_.AddReason(reason);
  BeginChange();
}

void Coordinator::BeginChange() {
  if (change_.state() == ViewChange::State::kPaused) {
    TryOpen();
  } else if (change_.state() == ViewChange::State::kOpen) {
    registry_.SendToShards(change_.Close(view_.number(), registry_.Shards()), &out_);
  }
}

void Coordinator::LetJoin() {
  if (!is_training() || change_.state() == ViewChange::State::kClosing) return;
  const std::vector<Peer*> workers = registry_.Workers();
  const bool is_new = std::any_of(workers.begin(), workers.end(),
                                  [](const Peer* worker) { return !worker->is_member; });
  if (!is_new) return;
  if (change_.state() == ViewChange::State::kPaused ||
      join_limit_.Wait(now_) == absl::ZeroDuration()) {
    BeginChange();
  }
}

void Coordinator::TryOpen() {
  // Who stops needs no more than one to finish what is begun.
  const int min = ending_.stopping() ? 1 : job_.cluster().workers().min();
  const bool was_paused = change_.state() == ViewChange::State::kPaused;
  const int64_t step = work_->metrics().steps();
  if (registry_.workers() >= min) {
    if (was_paused) {
      out_.push_back(
          Log{absl::StrFormat("goes on at step %d with %d workers", step, registry_.workers())});
    }
    OpenNextView();
    return;
  }
  if (!was_paused && !ending_.stopping()) {
    out_.push_back(Warn{
        absl::StrFormat("paused at step %d: %d of at least %d workers (cluster.workers.min) are "
                        "here; goes on when others have joined",
                        step, registry_.workers(), min)});
  }
  change_.Pause();
  if (ending_.stopping()) EndTraining();
}

void Coordinator::OpenNextView() {
  const bool is_new_lineage = work_->lineage().is_over();
  const proto::Mode before = work_->lineage().mode();
  // A contribution that some blocks hold may be left out when it is computed once more.
  if (is_new_lineage && !change_.has_one_version() &&
      job_.train().on_non_finite() != proto::Train::ON_NON_FINITE_SKIP) {
    On(coordinator::Failed{absl::InternalError(
        absl::StrFormat("blocks are at versions %d to %d where all should be at one",
                        change_.lowest(), change_.highest()))});
    return;
  }
  work_->CatchUpWithBlocks(change_, now_, &out_);
  view_.set_number(view_.number() + 1);
  if (is_new_lineage) view_.set_tests_origin(evaluations_->EndLineage(work_->lineage()));
  work_->OpenView(change_, ending_.stopping(), registry_.WorkerIds(), &view_, &out_);
  const int64_t from_step = view_.from_step();
  change_.Open();
  if (is_new_lineage) OnNewLineage(before);
  const bool takes =
      work_->policy().blocks_in_step() && checkpoints_.is_due() && !ending_.stopping();
  const int64_t step = std::min(from_step, work_->lineage().until());
  // Every block can reach that step, and none goes beyond it before it hears of the snapshot.
  if (takes && !is_new_lineage) checkpoints_.Take(step, registry_, &out_);
  work_->AddMembers(change_, is_new_lineage, &registry_, &view_);
  registry_.SendViewToShards(view_, &out_);
  // What a shard copies depends on the lineage that it is in.
  if (takes && is_new_lineage) checkpoints_.Take(step, registry_, &out_);
  SendViewToWorkers();
  AnnounceCheckpoint(from_step);
}

void Coordinator::OnNewLineage(const proto::Mode& before) {
  const Lineage& lineage = work_->lineage();
  checkpoints_.BeginLineage(lineage);
  evaluations_->BeginLineage();
  decisions_->BeginLineage();
  ++summary_.switches;
  const int64_t samples = lineage.schedule().SamplesBefore(lineage.origin());
  out_.push_back(
      Log{absl::StrFormat("from step %d, epoch %.2f on: %s (was %s)", work_->metrics().steps(),
                          static_cast<double>(samples) / view_.samples_per_epoch(),
                          ModeName(lineage.mode()), ModeName(before))});
}

void Coordinator::KeepCounts() {
  proto::Lasting now = lasting_;
  if (!is_over_) now.set_workers(view_.members_size());
  now.set_workers_lost(summary_.workers_lost);
  now.set_workers_left(summary_.workers_left);
  now.set_switches(summary_.switches);
  now.set_lineage(work_->lineage().number());
  now.set_begun_term(before_.term());
  now.set_begun_samples(first_samples());
  now.set_samples_rolled_back(summary_.samples_rolled_back);
  if (now.SerializeAsString() == lasting_.SerializeAsString()) return;
  lasting_ = std::move(now);
  Keep();
}

void Coordinator::SendViewToWorkers() {
  if (summary_.residuals_lost.has_value()) lasting_.set_residuals_lost(*summary_.residuals_lost);
  KeepCounts();
  const bool goes_back = view_.number() == 1 && !starting_.is_kept();
  out_.push_back(Journal{view_, change_.TakeReasons(), goes_back});
  for (const proto::Member& member : view_.members()) {
    PeerId id;
    Peer* const worker = registry_.FindWorker({member.rank(), member.incarnation()}, &id);
    if (worker == nullptr) continue;
    // Only members send heartbeats; one that has fallen silent is no younger by a new view.
    if (!worker->is_member) worker->last_heard = now_;
    worker->last_progress = now_;
    worker->is_member = true;
    worker->idle = false;
    proto::CoordinatorMessage message;
    *message.mutable_view() = view_;
    message.mutable_view()->set_your_rank(member.rank());
    out_.push_back(Send{id, std::move(message)});
  }
}

void Coordinator::CheckLeases() {
  if (!work_.has_value()) return;
  const int64_t step = has_begun() ? work_->metrics().steps() : 0;
  for (const Leases::Expired& expired : leases_.CheckSilent(registry_, step, now_)) {
    if (!registry_.Find(expired.peer)->is_worker) {
      LoseShard(expired.peer, expired.why);
      return;
    }
    if (is_training()) Evict(expired);
  }
  if (ending_.state() == Ending::State::kTesting) {
    const std::set<PeerId> awaited = ending_.awaited();
    for (const PeerId id : awaited) {
      const Peer* const peer = registry_.Find(id);
      if (peer == nullptr) continue;
      const auto expired = leases_.CheckTester(id, *peer, ending_.test(), now_);
      if (expired.has_value()) Evict(*expired);
    }
    return;
  }
  // Between two views nobody waits for a worker.
  if (!is_training() || change_.state() != ViewChange::State::kOpen) return;
  const std::vector<Leases::Expired> stalled = leases_.CheckStalled(registry_, step);
  if (stalled.empty()) return;
  const std::vector<WorkerId> waited_for = work_->WaitedFor(registry_);
  for (const Leases::Expired& expired : stalled) {
    const WorkerId& worker = registry_.peers().at(expired.peer).worker;
    if (std::count(waited_for.begin(), waited_for.end(), worker) > 0) Evict(expired);
  }
}

void Coordinator::Evict(const Leases::Expired& expired) {
  proto::Stop stop;
  stop.set_exit_code(kExitFailure);
  stop.set_evicted(true);
  stop.set_reason(absl::StrCat("taken for dead: it ", expired.why));
  out_.push_back(SendStop(expired.peer, std::move(stop)));
  Lose(expired.peer, expired.why);
}

void Coordinator::Lose(PeerId id, const std::string& why) {
  const Peer* const peer = registry_.Find(id);
  if (peer == nullptr || !peer->is_worker) return;
  const std::string reason = absl::StrCat(Describe(*peer), " ", why);
  out_.push_back(Warn{reason});
  change_.AddLost(peer->worker);
  if (evaluations_.has_value()) evaluations_->OnLost(peer->worker);
  if (has_begun() && ending_.state() <= Ending::State::kSaving) {
    ++(peer->leaves ? summary_.workers_left : summary_.workers_lost);
    if (peer->is_member && summary_.residuals_lost.has_value()) ++*summary_.residuals_lost;
  }
  const bool was_member = peer->is_member;
  registry_.Remove(id);
  if (was_member) {
    ChangeView(reason);
  } else if (is_training()) {  // no view has it
    change_.AddReason(reason);
  }
  if (ending_.Awaits(id)) ending_.OnLost(id, &*evaluations_, &registry_, now_, &out_);
}

void Coordinator::EndLineage(const std::string& reason) {
  if (work_->CutNow() && change_.state() == ViewChange::State::kOpen) {
    CheckDrained();
  } else {
    ChangeView(reason);  // which ends it when it opens
  }
}

void Coordinator::CheckDrained() {
  if (!is_training() || change_.state() != ViewChange::State::kOpen) return;
  Lineage& lineage = work_->lineage();
  if (registry_.workers() == 0 || !registry_.MembersAreIdle() || !work_->is_done()) return;
  // What is being copied is of this lineage, and so is its manifest.
  if (checkpoints_.IsCopying(lineage.until())) return;
  work_->CatchUp(now_, &out_);
  if (ending_.stopping() || lineage.is_last()) {
    EndTraining();
    return;
  }
  lineage.Finish();
  ChangeView(absl::StrCat("the switch to ", ModeName(lineage.next_mode())));
}

void Coordinator::TakeWantedCheckpoint() {
  if (!is_training() || ending_.stopping() || !checkpoints_.is_due()) return;
  if (work_->policy().blocks_in_step()) {
    if (change_.state() == ViewChange::State::kPaused) {
      // Else when it goes on.
      const bool stands_still = change_.has_one_version() && !work_->lineage().is_over();
      if (stands_still && change_.highest() >= checkpoints_.missed()) {
        checkpoints_.Take(change_.highest(), registry_, &out_);
      }
    } else {
      ChangeView("a checkpoint");  // which takes it when it opens
    }
  } else if (!work_->lineage().is_over()) {
    checkpoints_.Take(0, registry_, &out_);
  }
}

void Coordinator::AnnounceCheckpoint(int64_t after) {
  if (!is_training() || ending_.stopping()) return;
  checkpoints_.Announce(after, *work_, registry_, &out_);
}

void Coordinator::EndTraining() {
  if (change_.state() == ViewChange::State::kPaused) work_->Abandon(change_, now_, &out_);
  ending_.Begin(work_->lineage().until(), work_->policy().blocks_in_step());
  work_->End(now_, &summary_, &out_);
  summary_.views = view_.number();
  GoOnEnding();
}

void Coordinator::GoOnEnding() {
  if (ending_.state() != Ending::State::kSaving) return;
  checkpoints_.Forget();
  if (checkpoints_.is_under_way()) return;
  const absl::Status& end = ending_.stop_end();
  if (change_.state() == ViewChange::State::kPaused && work_->policy().blocks_in_step() &&
      !change_.has_one_version()) {
    EndAbandoned();
  } else if (ending_.WantsCheckpoint()) {
    checkpoints_.Take(ending_.unit(), registry_, &out_);
  } else if (!end.ok()) {
    End(end, kExitFailure, WhyStopped(end));
  } else {
    ending_.Test(&*evaluations_, &registry_, now_, &out_);
  }
}

void Coordinator::EndAbandoned() {
  const absl::Status& end = ending_.stop_end();
  const std::string reason =
      "the job was stopped while no worker was there to finish the step at hand";
  End(end.ok() ? absl::AbortedError(reason) : end, kExitFailure, reason);
}

}  // namespace rubato
