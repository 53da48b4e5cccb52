#include "server/coordinator/coordinator.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/space/modes.h"
#include "server/coordinator/peer_checks.h"

namespace rubato {

using coordinator::Answer;
using coordinator::Log;
using coordinator::Outcomes;
using coordinator::Send;
using coordinator::SendStop;
using coordinator::Warn;

namespace {

// Contributions that a worker may have asked for and not computed. It computes one while it asks
// for the next.
constexpr int64_t kMaxAsked = 64;

constexpr char kUntilReached[] = "train.until has been reached";

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

Coordinator::Coordinator(const proto::Job& job, const std::string& job_digest,
                         const std::string& version, const Begin& begin, absl::Time now,
                         PolicyFactory policies)
    : job_(job),
      policies_(std::move(policies)),
      restore_key_(begin.restore_key),
      starting_(job, begin.resume, begin.initial, now),
      registry_(job, job_digest, version),
      leases_(job, now),
      checkpoints_(job, job_digest, version, begin.path),
      ending_(job) {
  if (job.wire().push().codec() == proto::Push::CODEC_TOPK) {
    summary_.residuals_lost = begin.resume.has_value() ? begin.resume->residuals() : 0;
  }
}

Outcomes Coordinator::Handle(const coordinator::Event& event, absl::Time now) {
  now_ = now;
  std::visit([this](const auto& what) { On(what); }, event);
  return std::exchange(out_, {});
}

void Coordinator::On(const coordinator::FromPeer& event) {
  if (is_over_) return;
  const proto::PeerMessage& message = event.message;
  if (message.has_registration()) {
    OnRegistration(event.peer, message.registration());
    return;
  }
  Peer* const peer = registry_.Find(event.peer);
  if (peer == nullptr) {
    out_.push_back(
        SendStop(event.peer,
                 MakeRefusal(kExitFailure,
                             "this process is not registered: a call begins with a registration")));
    return;
  }
  if (const absl::Status status = Check(*peer, message); !status.ok()) {
    EndCall(event.peer, *peer, status);
    return;
  }
  peer->last_heard = now_;
  if (message.has_stop_request()) {
    On(coordinator::StopRequested{
        absl::AbortedError(absl::StrCat(Describe(*peer),
                                        " was ended: ", PeerText(message.stop_request().reason()))),
        ""});
  } else if (message.has_failure()) {
    OnFailure(event.peer, *peer, message.failure());
  } else if (peer->is_worker) {
    OnWorker(event.peer, peer, message);
  } else {
    OnShard(event.peer, peer->shard, message);
  }
}

absl::Status Coordinator::Check(const Peer& peer, const proto::PeerMessage& message) const {
  if (!work_.has_value()) {
    // There are no terms yet, and what needs them counts for nothing.
    if (!message.has_failure() && !message.has_stop_request()) return absl::OkStatus();
    return peer.is_worker ? CheckWorkerMessage(message, {}) : CheckShardMessage(message, {});
  }
  // What was on its way when the training ended counts for nothing any more.
  if (peer.is_worker && message.has_progress() && !(is_training() && peer.is_member)) {
    return absl::OkStatus();
  }
  const Lineage& lineage = work_->lineage();
  PeerTerms terms;
  terms.in_step = work_->policy().blocks_in_step();
  terms.origin = lineage.origin();
  terms.until = lineage.until();
  if (work_->is_training()) terms.done = work_->metrics().units();
  terms.leaves = lineage.schedule().leaves();
  terms.micro_batch = job_.train().batch_size() / job_.train().micro_batches();
  terms.values = placement_->space().values();
  if (peer.is_worker) return CheckWorkerMessage(message, terms);
  terms.blocks = placement_->Blocks(peer.shard.number);
  return CheckShardMessage(message, terms);
}

void Coordinator::EndCall(PeerId id, const Peer& peer, const absl::Status& why) {
  const std::string reason =
      absl::StrCat("says what no ", peer.is_worker ? "worker" : "shard", " says: ", why.message());
  out_.push_back(SendStop(id, MakeRefusal(kExitFailure, absl::StrCat("this process ", reason))));
  if (peer.is_worker) {
    Lose(id, reason);
    return;
  }
  const std::string end = absl::StrCat(Describe(peer), " ", reason);
  registry_.Remove(id);
  End(StoppedByOthers(absl::AbortedError(end)), kExitFailure, end);
}

void Coordinator::OnShard(PeerId id, const ShardId& shard, const proto::PeerMessage& message) {
  if (!work_.has_value()) return;  // before the first view nothing is asked
  switch (message.kind_case()) {
    case proto::PeerMessage::kShardOpened:
      if (starting_.OnOpened(shard, *placement_, registry_, &out_)) BeginTraining();
      break;
    case proto::PeerMessage::kShardRestored:
      if (starting_.OnRestored(shard)) BeginTraining();
      break;
    case proto::PeerMessage::kShardClosed:
      if (change_.OnClosed(shard, message.shard_closed())) TryOpen();
      break;
    case proto::PeerMessage::kSnapshotCopied:
      if (checkpoints_.OnCopied(shard, message.snapshot_copied())) {
        out_.push_back(checkpoints_.Write(view_, *work_, *evaluations_, registry_));
        CheckDrained();
      }
      break;
    case proto::PeerMessage::kSnapshotMissed:
      if (!checkpoints_.OnMissed(message.snapshot_missed())) break;
      if (ending_.state() == Ending::State::kSaving) {
        EndAbandoned();
      } else {
        AnnounceCheckpoint(message.snapshot_missed().version());
        CheckDrained();
      }
      break;
    case proto::PeerMessage::kQuestion:
      OnQuestion(id, shard, message.question());
      break;
    case proto::PeerMessage::kShardReport:
      ending_.OnReport(shard, message.shard_report(), &summary_, &out_);
      break;
    default:
      break;  // a worker's, or of a later version
  }
}

bool Coordinator::MayAskForMore(PeerId id, const Peer& peer) {
  if (work_->ledger().Waiting(peer.worker) < kMaxAsked) return true;
  EndCall(id, peer,
          absl::ResourceExhaustedError(absl::StrFormat(
              "work_request: found one while %d contributions wait for it, expected fewer",
              kMaxAsked)));
  return false;
}

void Coordinator::OnWorker(PeerId id, Peer* peer, const proto::PeerMessage& message) {
  const bool works = is_training() && peer->is_member;
  switch (message.kind_case()) {
    case proto::PeerMessage::kWorkRequest:
      if (!works) break;
      if (!MayAskForMore(id, *peer)) break;
      work_->OnApplied(peer->worker, message.work_request().applied());
      work_->Give(id, peer, &*evaluations_, now_, &out_);
      break;
    case proto::PeerMessage::kProgress:
      if (!works) break;
      if (!work_->IsGiven(peer->worker, message.progress().unit())) {
        EndCall(id, *peer,
                absl::InvalidArgumentError(absl::StrFormat(
                    "progress.unit: found %d, expected a contribution that it has been given",
                    message.progress().unit())));
        break;
      }
      work_->OnProgress(message.progress(), peer, &registry_, &*evaluations_, now_, &out_);
      checkpoints_.OnProgress(*work_);
      TakeWantedCheckpoint();
      break;
    case proto::PeerMessage::kIdle:
      if (!works || message.idle().view() != view_.number() || !MayAskForMore(id, *peer)) break;
      work_->OnApplied(peer->worker, message.idle().applied());
      if (work_->OnIdle(id, peer, &*evaluations_, now_, &out_)) CheckDrained();
      break;
    case proto::PeerMessage::kEvaluation:
      OnEvaluation(id, *peer, message.evaluation());
      break;
    case proto::PeerMessage::kLeave:
      out_.push_back(SendStop(id, MakeStop(0, "it has left")));
      if (work_.has_value()) work_->OnLeaving(peer->worker, message.leave().applied());
      peer->leaves = true;
      Lose(id, absl::StrCat("leaves: ", PeerText(message.leave().reason())));
      break;
    default:
      break;  // a shard's, or of a later version
  }
}

void Coordinator::OnFailure(PeerId id, const Peer& peer, const proto::Failure& failure) {
  if (failure.non_finite()) {
    Diverge(id, PeerText(failure.reason()));
    return;
  }
  const std::string why = absl::StrCat("failed: ", PeerText(failure.reason()));
  if (peer.is_worker && has_begun()) {
    Lose(id, why);
    return;
  }
  const std::string reason = absl::StrCat(Describe(peer), " ", why);
  End(StoppedByOthers(failure.exit_code() == kExitUsage ? absl::FailedPreconditionError(reason)
                                                        : absl::AbortedError(reason)),
      failure.exit_code(), reason);
}

void Coordinator::OnRegistration(PeerId id, const proto::Registration& registration) {
  if (registry_.Find(id) != nullptr) return;
  const bool gathers = starting_.state() == Starting::State::kGathering;
  const proto::Workers& workers = job_.cluster().workers();
  absl::Status status = registry_.Check(registration, gathers ? workers.start() : workers.max());
  if (status.ok() && registration.has_worker()) {
    status = starting_.CheckData(registration.worker());
  }
  if (status.ok() && has_begun() && !is_training()) {
    status = absl::UnavailableError("the training is over");
  }
  if (!status.ok()) {
    out_.push_back(
        Warn{absl::StrCat("refused ", PeerText(registration.process()), ": ", status.message())});
    out_.push_back(SendStop(
        id, MakeRefusal(status.code() == absl::StatusCode::kUnavailable ? kExitFailure : kExitUsage,
                        std::string(status.message()))));
    return;
  }
  const Peer* const peer = registry_.Add(id, registration, now_, &out_);
  if (gathers) {
    Gather();
    if (!is_over_ && starting_.state() == Starting::State::kGathering) {
      out_.push_back(
          Log{absl::StrCat(Describe(*peer), " is here; waiting for ", registry_.Missing())});
    }
  } else {
    ChangeView(absl::StrCat(Describe(*peer), " joins"));
  }
}

void Coordinator::On(const coordinator::PeerGone& event) {
  const Peer* const peer = registry_.Find(event.peer);
  if (peer == nullptr || is_over_) return;
  if (starting_.state() == Starting::State::kGathering) {
    out_.push_back(Warn{absl::StrCat(Describe(*peer), " has left before the start")});
    registry_.Remove(event.peer);
    return;
  }
  const std::string why = absl::StrFormat("is gone: its connection broke at step %d",
                                          has_begun() ? work_->metrics().steps() : 0);
  if (peer->is_worker) {
    Lose(event.peer, why);
  } else {
    EndWithout(event.peer, why);
  }
}

void Coordinator::EndWithout(PeerId shard, const std::string& why) {
  std::string reason = absl::StrCat(Describe(*registry_.Find(shard)), " ", why);
  if (const absl::Duration pause = leases_.StoodStill(now_); pause > absl::ZeroDuration()) {
    reason = absl::StrFormat(
        "shard 0 stood still for %s, longer than cluster.lease (%s), and has lost its connections: "
        "%s",
        absl::FormatDuration(absl::Trunc(pause, absl::Milliseconds(1))),
        absl::FormatDuration(absl::Seconds(job_.cluster().lease())), reason);
  }
  registry_.Remove(shard);
  End(StoppedByOthers(absl::AbortedError(reason)), kExitFailure, reason);
}

void Coordinator::On(const coordinator::Heartbeat& event) {
  Peer* const peer = registry_.FindAlive(event.request);
  if (peer == nullptr) return;
  peer->last_heard = now_;
  peer->busy_seconds = event.request.busy_seconds();
}

void Coordinator::On(const coordinator::Tick&) {
  if (is_over_) return;
  leases_.OnTick(now_, &registry_);
  CheckLeases();
  if (starting_.state() == Starting::State::kGathering) Gather();
  if (!is_training()) return;
  checkpoints_.OnTick(now_);
  TakeWantedCheckpoint();
  const proto::Point& until = job_.train().until();
  if (until.has_time() && !ending_.stopping() && work_->metrics().Seconds(now_) >= until.time()) {
    On(coordinator::StopRequested{absl::OkStatus(), kUntilReached});
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
  out_.push_back(Answer{is_same
                            ? absl::StrCat("stays in ", name, " instead of switching")
                            : absl::StrFormat("switching from %s to %s %s",
                                              ModeName(lineage.mode()), name, work_->WhenCut())});
  lineage.Ask(event.mode);
  EndLineage(absl::StrCat("the switch to ", name));
}

void Coordinator::On(const coordinator::StopRequested& event) {
  const absl::Status& end = event.end;
  if (is_over_) return;
  const bool is_second = ending_.stopping() && !end.ok() && !ending_.stop_end().ok();
  const bool is_ending = ending_.state() > Ending::State::kSaving;
  // Nothing to save, or no more patience.
  if (!end.ok() && (!has_begun() || is_ending || is_second)) {
    End(end, kExitFailure, WhyStopped(end));
    return;
  }
  if (is_ending) return;
  const bool is_first = !ending_.stopping();
  ending_.Stop(end);
  if (!is_first) return;
  if (end.ok() && event.reason != kUntilReached) summary_.stopped = event.reason;
  out_.push_back(
      Log{absl::StrCat("stopping: ", end.ok() ? event.reason : std::string(end.message()))});
  if (starting_.state() == Starting::State::kGathering) {
    ending_.EndUnbegun(&summary_, &out_);
  } else if (is_training()) {
    EndLineage("the stop");
  }  // else when the training begins
}

void Coordinator::On(const coordinator::Checkpointed& event) {
  if (is_over_ && !event.path.ok()) return;  // it was given up
  checkpoints_.OnWritten(event.snapshot, event.path, registry_, &out_);
  if (is_over_) return;
  if (!ending_.diverged().empty()) {
    EndDiverged();
    return;
  }
  TakeWantedCheckpoint();
  AnnounceCheckpoint(std::max(checkpoints_.step(), work_->metrics().units()));
  GoOnEnding();
}

void Coordinator::On(const coordinator::Collected& event) {
  if (is_over_ || ending_.state() != Ending::State::kCollecting) return;
  if (event.status.ok()) {
    End(absl::OkStatus(), 0, "");
  } else {
    On(coordinator::Failed{event.status});
  }
}

void Coordinator::On(const coordinator::Failed& event) {
  if (is_over_) return;
  End(event.status, kExitFailure, absl::StrCat("shard 0 has failed: ", event.status.message()));
}

void Coordinator::OnQuestion(PeerId id, const ShardId& shard, const proto::Question& question) {
  if (!decisions_.has_value()) return;
  const std::optional<Decisions::Answer> answer =
      decisions_->OnQuestion(shard, question, work_->policy(), work_->FirstOpen(question.unit()));
  if (!answer.has_value()) return;
  proto::CoordinatorMessage message;
  *message.mutable_decision() = answer->decision;
  if (!answer->is_new) {
    out_.push_back(Send{id, std::move(message)});
    return;
  }
  if (answer->is_incomplete) {
    On(coordinator::Failed{absl::InternalError(absl::StrFormat(
        "step %d cannot be clipped: the shards measured only a part of it", question.unit()))});
    return;
  }
  if (answer->non_finite >= 0) {
    const std::string parameter = ParameterAt(view_.layout(), answer->non_finite);
    if (job_.train().on_non_finite() == proto::Train::ON_NON_FINITE_STOP) {
      // Each worker's own sums are finite, or it would have said so.
      Diverge(kOwnShard,
              absl::StrFormat("step %d: the gradient of %s, summed over the workers, is not finite",
                              question.unit(), parameter));
      return;
    }
    out_.push_back(
        Warn{absl::StrFormat("step %d is left out: the gradient of %s is not finite (%d so far)",
                             question.unit(), parameter, work_->Skip())});
  }
  registry_.SendToShards(message, &out_);
}

void Coordinator::OnEvaluation(PeerId id, const Peer& peer,
                               const proto::EvaluationResult& evaluation) {
  if (!has_begun() || evaluation.samples() <= 0) return;
  // Of the parameters at the end, from the one that is asked; others while the training goes on.
  const bool at_end = ending_.state() == Ending::State::kTesting && id == ending_.tester() &&
                      evaluation.unit() == ending_.unit();
  const bool is_expected = !evaluation.is_final() &&
                           evaluations_->Expects(peer.worker, evaluation.unit(), work_->lineage());
  if (!at_end && !is_expected) {
    return;  // nobody asked for it, or it has been told
  }
  const MetricsLine line = work_->metrics().OnEvaluation(evaluation, now_);
  out_.push_back(line);
  if (evaluation.is_final()) {
    ending_.OnFinalTest(evaluation.unit(), line, *evaluations_, registry_, &summary_, &out_);
    return;
  }
  const std::optional<std::string> stop = evaluations_->OnResult(evaluation.unit(), line);
  if (ending_.state() == Ending::State::kTesting && !ending_.is_final()) {
    ending_.Test(&*evaluations_, &registry_, now_, &summary_, &out_);
  }
  if (stop.has_value()) On(coordinator::StopRequested{absl::OkStatus(), *stop});
}

void Coordinator::Diverge(PeerId culprit, const std::string& reason) {
  if (ending_.Diverge(culprit, reason) && !checkpoints_.is_writing()) EndDiverged();
}

void Coordinator::EndDiverged() {
  const std::string& last = checkpoints_.last();
  std::string reason = absl::StrCat(
      ending_.diverged(), "; ",
      last.empty() ? "there is no checkpoint" : absl::StrCat("the last good checkpoint is ", last));
  const PeerId id = ending_.culprit();
  const Peer* const culprit = id == kOwnShard ? nullptr : registry_.Find(id);
  if (culprit != nullptr) {
    out_.push_back(SendStop(id, MakeRefusal(kExitFailure, reason)));
    reason = absl::StrCat(Describe(*culprit), " failed: ", reason);
  }
  End(absl::AbortedError(reason), kExitFailure, reason);
}

std::string Coordinator::WhyStopped(const absl::Status& end) {
  // Cancelled: by a signal to this process.
  return absl::StrCat(end.code() == absl::StatusCode::kCancelled ? "shard 0 was ended: " : "",
                      end.message());
}

void Coordinator::End(const absl::Status& status, int exit_code, const std::string& reason) {
  is_over_ = true;
  const std::string& last = checkpoints_.last();
  if (has_begun() && !status.ok() && !last.empty() && ending_.diverged().empty()) {
    out_.push_back(Log{absl::StrCat("the last good checkpoint is ", last,
                                    "; go on with: rubato train --resume ", last)});
  }
  for (const auto& [id, peer] : registry_.peers()) {
    if (id != kOwnShard) out_.push_back(SendStop(id, MakeStop(exit_code, reason)));
  }
  out_.push_back(coordinator::End{status});
}

}  // namespace rubato
