#include "server/coordinator/coordinator.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/job/is_script.h"
#include "common/space/modes.h"

namespace rubato {

using coordinator::Answer;
using coordinator::Log;
using coordinator::MakeRefusal;
using coordinator::MakeStop;
using coordinator::Outcomes;
using coordinator::Send;
using coordinator::SendStop;
using coordinator::Warn;

namespace {

constexpr char kUntilReached[] = "train.until has been reached";

proto::Stop MakeSendBack(const std::string& reason) {
  proto::Stop stop = MakeStop(kExitFailure, reason);
  stop.set_goes_back(true);
  return stop;
}

}  // namespace

Coordinator::Coordinator(const proto::Job& job, const std::string& job_digest,
                         const std::string& version, const Begin& begin, absl::Time now,
                         PolicyFactory policies)
    : job_(job),
      policies_(std::move(policies)),
      restore_key_(begin.restore_key),
      before_(begin.state),
      stood_still_(begin.stood_still),
      begun_(now),
      lasting_(begin.state.lasting()),
      starting_(job, begin.resume, begin.shared_path, begin.initial, begin.state, now),
      first_values_(begin.values_of_piece),
      registry_(job, job_digest, version),
      leases_(job, now),
      latecomers_(job.cluster().workers().max()),
      checkpoints_(job, job_digest, version, begin.path, begin.state.begun_from()),
      ending_(job),
      is_over_(begin.is_over),
      has_ended_well_(begin.is_over) {
  if (job.wire().push().codec() == proto::Push::CODEC_TOPK) {
    const int64_t before = begin.resume.has_value() ? begin.resume->residuals() : 0;
    summary_.residuals_lost =
        lasting_.has_residuals_lost() ? lasting_.residuals_lost() + lasting_.workers() : before;
  }
  summary_.workers_lost = lasting_.workers_lost();
  summary_.workers_left = lasting_.workers_left();
  summary_.switches = lasting_.switches();
  summary_.servers_lost = before_.servers_lost();
  summary_.samples_rolled_back = lasting_.samples_rolled_back();
  if (begin.is_over) absent_ = CountAbsent();
}

double Coordinator::seconds() const {
  const double before = starting_.resume().has_value() ? starting_.resume()->seconds() : 0;
  if (!work_.has_value() || !work_->is_training()) return before;
  return std::max(before, work_->metrics().last_seconds());
}

int64_t Coordinator::samples() const {
  if (work_.has_value() && work_->is_training()) return work_->metrics().samples();
  return first_samples();
}

Outcomes Coordinator::Handle(const coordinator::Event& event, absl::Time now) {
  now_ = now;
  std::visit([this](const auto& what) { On(what); }, event);
  return std::exchange(out_, {});
}

void Coordinator::On(const coordinator::PeerGone& event) {
  LosePeer(event.peer);
  registry_.Forget(event.peer);
  latecomers_.OnGone(event.peer);
}

void Coordinator::LosePeer(PeerId id) {
  const Peer* const peer = registry_.Find(id);
  if (peer == nullptr || is_over_) return;
  if (starting_.state() == Starting::State::kGathering) {
    out_.push_back(Warn{absl::StrCat(Describe(*peer), " has left before the start")});
    registry_.Remove(id);
    return;
  }
  const std::string why = absl::StrFormat("is gone: its connection broke at step %d",
                                          has_begun() ? work_->metrics().steps() : 0);
  if (peer->is_worker) {
    Lose(id, why);
  } else {
    LoseShard(id, why);
  }
}

void Coordinator::LoseShard(PeerId shard, const std::string& why) {
  const int number = registry_.Find(shard)->shard.number;
  std::string reason = absl::StrCat(Describe(*registry_.Find(shard)), " ", why);
  if (const absl::Duration pause = leases_.StoodStill(now_); pause > absl::ZeroDuration()) {
    reason = absl::StrFormat(
        "%s stood still for %s (cluster.lease: %s) and has lost its connections: %s", Name(),
        absl::FormatDuration(absl::Trunc(pause, absl::Milliseconds(1))),
        absl::FormatDuration(absl::Seconds(job_.cluster().lease())), reason);
  }
  registry_.Remove(shard);
  if (MayGoBack() && ending_.state() == Ending::State::kCollecting) {
    lost_ = number;
    why_lost_ = reason;
  } else {
    GoBackOrEnd(number, reason);
  }
}

bool Coordinator::MayGoBack() const {
  // Before the first view a shard is simply waited for; who is to end by a signal ends. What fails
  // each time anew does not get better.
  const int restarts = job_.cluster().max_restarts();
  return restarts > 0 && (has_trained() || before_.terms_in_vain() < restarts) &&
         ending_.stop_end().ok() && ending_.diverged().empty() &&
         starting_.state() != Starting::State::kGathering;
}

void Coordinator::GoBackOrEnd(int lost_shard, const std::string& reason) {
  if (MayGoBack()) {
    GoBack(lost_shard, reason);
  } else {
    End(StoppedByOthers(absl::AbortedError(reason)), kExitFailure, reason);
  }
}

void Coordinator::GoBack(int lost_shard, const std::string& reason) {
  if (has_begun()) KeepCounts();
  is_over_ = goes_back_ = true;
  const std::string& last = checkpoints_.last();
  out_.push_back(
      Warn{absl::StrCat(reason, "; the job goes back to ", last.empty() ? "its beginning" : last,
                        " when all servers are here, unless all have kept their values")});
  for (const auto& [id, peer] : registry_.peers()) SendBack(id, reason);
  latecomers_.Tell(MakeSendBack(reason), &out_);
  out_.push_back(coordinator::End{StoppedByOthers(absl::AbortedError(reason)), lost_shard});
}

void Coordinator::SendBack(PeerId id, const std::string& reason) {
  out_.push_back(SendStop(id, MakeSendBack(reason)));
}

void Coordinator::On(const coordinator::Heartbeat& event) {
  if (event.request.has_term() && event.request.term() != before_.term()) return;
  Peer* const peer = registry_.FindAlive(event.request);
  if (peer == nullptr) return;
  peer->last_heard = peer->last_beat = now_;
  peer->busy_seconds = event.request.busy_seconds();
  peer->refused = event.request.refused();
}

void Coordinator::On(const coordinator::Tick&) {
  if (is_over_) return;
  leases_.OnTick(now_, &registry_);
  CheckLeases();
  if (starting_.state() == Starting::State::kGathering) Gather();
  CheckReaders();
  if (is_over_) return;
  checkpoints_.OnPartsTick(now_, &out_);
  checkpoints_.WriteIfReady(&out_);
  if (!is_training()) return;
  work_->OnTick(now_, &out_);
  LetJoin();
  if (change_.state() != ViewChange::State::kPaused) checkpoints_.OnTick(now_);
  TakeWantedCheckpoint();
  const proto::Point& until = job_.train().until();
  if (until.has_time() && !ending_.stopping() && work_->metrics().Seconds(now_) >= until.time()) {
    On(coordinator::StopRequested{absl::OkStatus(), kUntilReached, /*lasts=*/false});
  }
}

void Coordinator::On(const coordinator::CheckpointRequested&) {
  if (!is_training() || ending_.stopping()) {
    out_.push_back(Answer{absl::UnavailableError("the job is not training")});
    return;
  }
  out_.push_back(Answer{""});
  checkpoints_.Want();
  TakeWantedCheckpoint();
}

void Coordinator::On(const coordinator::SwitchRequested& event) {
  if (!is_training() || ending_.stopping()) {
    out_.push_back(Answer{absl::UnavailableError("the job is not training")});
    return;
  }
  Lineage& lineage = work_->lineage();
  const std::string name = ModeName(event.mode);
  const bool is_same = IsSame(event.mode, lineage.mode());
  if (is_same && !lineage.asked().has_value() && !lineage.is_over()) {
    out_.push_back(Answer{absl::StrCat("the mode is ", name, " already")});
    return;
  }
  out_.push_back(Log{absl::StrCat("asked to switch to ", name)});
  *lasting_.mutable_mode() = event.mode;
  lasting_.set_mode_until_samples(lineage.stage_until_samples());
  Keep();
  out_.push_back(Answer{is_same
                            ? absl::StrCat("stays in ", name, " instead of switching")
                            : absl::StrFormat("switching from %s to %s %s",
                                              ModeName(lineage.mode()), name, work_->WhenCut())});
  lineage.Ask(event.mode, lineage.stage_until_samples());
  EndLineage(absl::StrCat("the switch to ", name));
}

void Coordinator::On(const coordinator::StopRequested& event) {
  const absl::Status& end = event.end;
  const auto keep = [&] {  // for the next term
    if (!lasting_.stop().empty()) return;
    lasting_.set_stop(event.reason);
    Keep();
  };
  if (is_over_) {
    if (goes_back_ && end.ok()) keep();
    return;
  }
  // All has been trained, or the stop before is being followed; but the job may go back.
  if (end.ok() && is_ending()) {
    if (event.lasts) keep();
    return;
  }
  const bool has_saved = ending_.state() > Ending::State::kSaving;
  if (!end.ok() && (!has_begun() || has_saved)) {  // nothing is left to save
    End(end, kExitFailure, WhyStopped(end));
    return;
  }
  // What was trained is not lost while the job gathers again: it stops when all are back.
  const bool is_back = starting_.state() == Starting::State::kGathering && before_.term() > 1;
  if (end.ok() && (event.lasts || is_back)) keep();
  if (has_saved || is_back) return;
  const bool is_first = !ending_.stopping();
  ending_.Stop(end);
  if (!end.ok()) {  // a worker may wait for a test before it computes what is left
    proto::CoordinatorMessage message;
    message.mutable_end_tests();
    registry_.SendToMembers(message, &out_);
  }
  if (!is_first) return;
  if (end.ok() && event.reason != kUntilReached) {
    summary_.stopped = event.reason;
  }
  out_.push_back(
      Log{absl::StrCat("stopping: ", end.ok() ? event.reason : std::string(end.message()))});
  if (starting_.state() == Starting::State::kGathering) {
    ending_.EndUnbegun(&out_);
  } else if (is_training()) {
    EndLineage(absl::StrCat("the stop: ", end.ok() ? event.reason : std::string(end.message())));
  }  // else when the training begins
}

void Coordinator::On(const coordinator::Checkpointed& event) {
  if (is_over_ && !event.path.ok()) return;  // it was given up
  const bool is_last = ending_.state() == Ending::State::kSaving && ending_.has_checkpoint();
  checkpoints_.OnWritten(event.path, is_last, &out_);
  if (is_over_) return;
  if (!ending_.diverged().empty()) {
    EndDiverged();
    return;
  }
  TakeWantedCheckpoint();
  AnnounceCheckpoint(std::max(checkpoints_.step(), work_->metrics().units()));
  // The announcement of another one says it, too.
  if (checkpoints_.last_snapshot() == event.snapshot) checkpoints_.Release(registry_, &out_);
  GoOnEnding();
}

void Coordinator::On(const coordinator::Collected& event) {
  if (is_over_ || ending_.state() != Ending::State::kCollecting) return;
  if (event.status.ok()) {
    End(absl::OkStatus(), 0, "");
  } else if (lost_.has_value()) {
    GoBack(*lost_, why_lost_);
  } else if (absl::IsAborted(event.status)) {  // a shard is about to be lost
    GoBackOrEnd(0, absl::StrCat("the result cannot be collected: ", event.status.message()));
  } else {
    On(coordinator::Failed{event.status});
  }
}

void Coordinator::On(const coordinator::RestoreBroke& event) {
  if (is_over_ || starting_.state() != Starting::State::kRestoring) return;
  GoBackOrEnd(0, absl::StrCat("a shard cannot be given its values: ", event.status.message()));
}

void Coordinator::On(const coordinator::Failed& event) {
  if (is_over_) return;
  End(event.status, kExitFailure, absl::StrCat(Name(), " has failed: ", event.status.message()));
}

void Coordinator::Diverge(PeerId culprit, const std::string& reason) {
  if (ending_.Diverge(culprit, reason) && !checkpoints_.is_writing()) EndDiverged();
}

void Coordinator::EndDiverged() {
  summary_.diverged = ending_.diverged();
  if (is_training()) {
    work_->End(now_, &summary_, &out_);
    summary_.views = view_.number();
  }
  const std::string& last = checkpoints_.last();
  std::string reason = absl::StrCat(
      ending_.diverged(), "; ",
      last.empty() ? "there is no checkpoint" : absl::StrCat("the last good checkpoint is ", last),
      " (often the learning rate is too high, or the inputs are not normalized)");
  const PeerId id = ending_.culprit();
  const Peer* const culprit = id == kOwnShard ? nullptr : registry_.Find(id);
  if (culprit != nullptr) {
    out_.push_back(SendStop(id, MakeRefusal(kExitFailure, reason)));
    reason = absl::StrCat(Describe(*culprit), " failed: ", reason);
  }
  EndAll(absl::AbortedError(reason), kExitFailure, reason);
}

std::string Coordinator::WhyStopped(const absl::Status& end) const {
  // Cancelled: by a signal to this process.
  return absl::StrCat(
      end.code() == absl::StatusCode::kCancelled ? absl::StrCat(Name(), " was ended: ") : "",
      end.message());
}

// Who has been cut off for less than the lease is taken to be here still, and is not heard.
int Coordinator::CountAbsent() const {
  const proto::Cluster& cluster = job_.cluster();
  int others =
      cluster.servers() - (cluster.dedicated_coordinator() ? 0 : 1) + cluster.workers().start();
  for (const auto& [id, peer] : registry_.peers()) {
    if (id != kOwnShard && now_ - peer.last_heard <= absl::Seconds(cluster.lease()) / 2) --others;
  }
  return std::max(0, others - latecomers_.size());
}

void Coordinator::End(const absl::Status& status, int exit_code, const std::string& reason) {
  if (!ending_.diverged().empty()) {
    EndDiverged();
    return;
  }
  const std::string& last = checkpoints_.last();
  if (has_begun() && !status.ok() && !last.empty()) {
    // A script that nobody starts goes on by itself, and says how.
    const bool by_command = !IsScript(job_) || job_.script_size() > 0;
    out_.push_back(Log{absl::StrCat(
        "the last good checkpoint is ", last,
        by_command ? absl::StrCat("; go on with: rubato train --resume ", last) : "")});
  }
  EndAll(status, exit_code, reason);
}

void Coordinator::EndAll(const absl::Status& status, int exit_code, const std::string& reason) {
  is_over_ = true;
  has_ended_well_ = status.ok();
  absent_ = CountAbsent();
  for (const auto& [id, peer] : registry_.peers()) {
    if (id != kOwnShard) out_.push_back(SendStop(id, MakeStop(exit_code, reason)));
  }
  latecomers_.Tell(MakeStop(exit_code, reason), &out_);
  out_.push_back(coordinator::End{status});
}

void Coordinator::TellOfEnd(const coordinator::FromPeer& event) {
  if (!event.message.has_registration() || registry_.Find(event.peer) != nullptr) return;
  const absl::Status status = registry_.CheckJob(event.message.registration());
  out_.push_back(
      SendStop(event.peer, status.ok() ? MakeStop(0, "the training is over")
                                       : MakeRefusal(kExitUsage, std::string(status.message()))));
}

// Whatever an honest one says, it ends with it.
void Coordinator::OnLatecomer(PeerId id, Verdict verdict, const proto::PeerMessage& message) {
  latecomers_.OnGone(id);
  registry_.MarkGone(id);
  if (verdict == Verdict::kAllowed && (message.has_leave() || message.has_failure())) {
    if (message.has_leave()) out_.push_back(SendStop(id, MakeStop(0, "it has left")));
    return;
  }
  ++refused_;
  const std::string reason =
      absl::StrCat("says ", MessageName(message.kind_case()), " while it waits for the end");
  if (tells_refusal_.May(now_)) {
    out_.push_back(Warn{absl::StrCat("refused a worker that ", reason)});
  }
  out_.push_back(SendStop(id, MakeRefusal(kExitFailure, absl::StrCat("this process ", reason))));
}

}  // namespace rubato
