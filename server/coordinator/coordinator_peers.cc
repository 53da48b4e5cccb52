// What peers say to the coordinator, and what it answers.
#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status.h"
#include "common/job/is_script.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/peer_checks.h"
#include "server/rules/allowed.h"

namespace rubato {

using coordinator::Log;
using coordinator::MakeRefusal;
using coordinator::MakeStop;
using coordinator::Send;
using coordinator::SendStop;
using coordinator::Warn;

namespace {

// Who may not say it, for people.
absl::Status NoMessageOf(Speaker speaker, proto::PeerMessage::KindCase kind) {
  const bool is_shard = speaker == Speaker::kNewShard || speaker == Speaker::kShard;
  const bool is_new = speaker == Speaker::kNewShard || speaker == Speaker::kNewWorker;
  return absl::InvalidArgumentError(absl::StrCat(MessageName(kind), ": not sent by a ",
                                                 is_shard ? "shard" : "worker",
                                                 is_new ? " that has had no view" : ""));
}

// What a shard says may come twice, and so may this.
absl::Status CheckAgain(const Peer& peer, const proto::Registration& registration) {
  if (registration.SerializeAsString() == peer.registration.SerializeAsString()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError("registration: found another than its first");
}

}  // namespace

Speaker Coordinator::SpeakerOf(PeerId id) {
  const Peer* const peer = registry_.Find(id);
  if (latecomers_.Has(id)) return Speaker::kNewWorker;
  if (peer == nullptr) return registry_.HasGone(id) ? Speaker::kGone : Speaker::kStranger;
  if (!peer->is_worker) return work_.has_value() ? Speaker::kShard : Speaker::kNewShard;
  if (!peer->is_member) return Speaker::kNewWorker;
  return is_training() ? Speaker::kMember : Speaker::kMemberAfter;
}

void Coordinator::On(const coordinator::FromPeer& event) {
  if (is_over_) {
    if (has_ended_well_) TellOfEnd(event);
    return;
  }
  const proto::PeerMessage& message = event.message;
  const Speaker speaker = SpeakerOf(event.peer);
  const Verdict verdict = MaySay(message.kind_case(), speaker);
  if (latecomers_.Has(event.peer)) {
    OnLatecomer(event.peer, verdict, message);
    return;
  }
  Peer* const peer = registry_.Find(event.peer);
  if (peer == nullptr) {
    if (verdict == Verdict::kAllowed) OnRegistration(event.peer, message.registration());
    if (verdict == Verdict::kRefused) RefuseStranger(event.peer, message);
    return;
  }
  absl::Status status;
  if (verdict == Verdict::kRefused) status = NoMessageOf(speaker, message.kind_case());
  if (verdict == Verdict::kAllowed) status = Check(event.peer, *peer, message);
  if (message.has_registration()) status.Update(CheckAgain(*peer, message.registration()));
  if (!status.ok()) {
    EndCall(event.peer, *peer, status);
    return;
  }
  peer->last_heard = now_;
  if (verdict == Verdict::kDropped) return;
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

void Coordinator::RefuseStranger(PeerId id, const proto::PeerMessage& message) {
  const std::string reason =
      absl::StrCat("is not registered: a call begins with a registration, found ",
                   MessageName(message.kind_case()));
  ++refused_;
  if (tells_refusal_.May(now_)) {
    out_.push_back(Warn{absl::StrCat("refused a process that ", reason)});
  }
  registry_.MarkGone(id);
  out_.push_back(SendStop(id, MakeRefusal(kExitFailure, absl::StrCat("this process ", reason))));
}

absl::Status Coordinator::Check(PeerId id, const Peer& peer,
                                const proto::PeerMessage& message) const {
  // There are no terms yet; what may be said needs none.
  if (!work_.has_value()) {
    return peer.is_worker ? CheckWorkerMessage(message, {}) : CheckShardMessage(message, {});
  }
  const Lineage& lineage = work_->lineage();
  PeerTerms terms;
  terms.view = view_.number();
  terms.snapshot = checkpoints_.last_snapshot();
  terms.is_member = peer.is_member;
  terms.tests_last = ending_.Awaits(id) && ending_.is_final();
  terms.reports = ending_.state() >= Ending::State::kReporting;
  terms.in_step = work_->policy().blocks_in_step();
  terms.origin = lineage.origin();
  terms.until = lineage.until();
  if (work_->is_training()) terms.done = work_->metrics().units();
  terms.leaves = lineage.schedule().leaves();
  terms.micro_batch = job_.train().batch_size() / job_.train().micro_batches();
  terms.values = placement_->space().values();
  terms.is_script = IsScript(job_);
  if (peer.is_worker) {
    RUBATO_RETURN_IF_ERROR(CheckWorkerMessage(message, terms));
    const bool tells = message.has_progress() && is_training();
    return tells ? work_->CheckGiven(peer.worker, message.progress()) : absl::OkStatus();
  }
  terms.blocks = placement_->Blocks(peer.shard.number);
  return CheckShardMessage(message, terms);
}

void Coordinator::EndCall(PeerId id, const Peer& peer, const absl::Status& why) {
  ++refused_;
  const std::string reason = absl::StrCat("sent an invalid message: ", why.message());
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
  switch (message.kind_case()) {
    case proto::PeerMessage::kShardOpened:
      if (starting_.OnOpened(shard, *placement_, registry_, &out_)) BeginTraining();
      break;
    case proto::PeerMessage::kShardRestored:
      if (starting_.OnRestored(shard, message.shard_restored(), &out_)) BeginTraining();
      break;
    case proto::PeerMessage::kShardClosed:
      if (change_.OnClosed(shard, message.shard_closed())) TryOpen();
      break;
    case proto::PeerMessage::kSnapshotCopied:
      if (checkpoints_.OnCopied(shard, message.snapshot_copied(), view_, *work_, *evaluations_,
                                registry_, now_)) {
        checkpoints_.WriteIfReady(&out_);
        CheckDrained();
      }
      break;
    case proto::PeerMessage::kPartWritten:
      checkpoints_.OnPart(shard, message.part_written(), now_);
      checkpoints_.WriteIfReady(&out_);
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
      break;  // no shard's
  }
}

bool Coordinator::MayAskFor(int64_t count, PeerId id, const Peer& peer) {
  const int64_t waiting = work_->ledger().Waiting(peer.worker);
  if (waiting + count <= kMaxAsked) return true;
  EndCall(id, peer,
          absl::ResourceExhaustedError(absl::StrFormat(
              "work_request.count: found %d while %d contributions wait for it, expected at most "
              "%d together",
              count, waiting, kMaxAsked)));
  return false;
}

void Coordinator::OnWorker(PeerId id, Peer* peer, const proto::PeerMessage& message) {
  switch (message.kind_case()) {
    case proto::PeerMessage::kWorkRequest:
      if (!MayAskFor(message.work_request().count(), id, *peer)) break;
      work_->OnApplied(peer->worker, message.work_request().applied());
      work_->Give(id, message.work_request().count(), peer, &*evaluations_, now_, &out_);
      break;
    case proto::PeerMessage::kProgress:
      work_->OnProgress(message.progress(), now_ - absl::Seconds(message.held_seconds()), peer,
                        &registry_, &*evaluations_, now_, &out_);
      checkpoints_.OnProgress(*work_);
      TakeWantedCheckpoint();
      break;
    case proto::PeerMessage::kIdle:
      // Of an earlier view it comes late.
      if (message.idle().view() != view_.number() || !MayAskFor(1, id, *peer)) break;
      work_->OnApplied(peer->worker, message.idle().applied());
      if (work_->OnIdle(id, peer, &*evaluations_, now_, &out_)) CheckDrained();
      break;
    case proto::PeerMessage::kEvaluation:
      OnEvaluation(id, *peer, message.evaluation());
      break;
    case proto::PeerMessage::kInitialValues:
      first_values_.OnPiece(id, message.initial_values(), &out_);
      break;
    case proto::PeerMessage::kLeave:
      out_.push_back(SendStop(id, MakeStop(0, "it has left")));
      if (work_.has_value()) work_->OnLeaving(peer->worker, message.leave().applied());
      peer->leaves = true;
      Lose(id, absl::StrCat("leaves: ", PeerText(message.leave().reason())));
      break;
    default:
      break;  // no worker's
  }
}

void Coordinator::OnFailure(PeerId id, const Peer& peer, const proto::Failure& failure) {
  if (failure.non_finite() && job_.train().on_non_finite() == proto::Train::ON_NON_FINITE_STOP) {
    Diverge(id, PeerText(failure.reason()));
    return;
  }
  const std::string why = absl::StrCat("failed: ", PeerText(failure.reason()));
  const bool gathers = starting_.state() == Starting::State::kGathering;
  const bool comes_back =
      peer.is_worker || (failure.exit_code() != kExitUsage && job_.cluster().max_restarts() > 0);
  if (gathers && before_.term() > 1 && comes_back) {
    out_.push_back(Warn{absl::StrCat(Describe(peer), " ", why)});
    registry_.Remove(id);
    return;
  }
  if (peer.is_worker && (has_begun() || before_.term() > 1)) {
    Lose(id, why);
    return;
  }
  if (!peer.is_worker && failure.exit_code() != kExitUsage && MayGoBack()) {
    LoseShard(id, why);
    return;
  }
  const std::string reason = absl::StrCat(Describe(peer), " ", why);
  End(StoppedByOthers(failure.exit_code() == kExitUsage ? absl::FailedPreconditionError(reason)
                                                        : absl::AbortedError(reason)),
      failure.exit_code(), reason);
}

void Coordinator::OnRegistration(PeerId id, const proto::Registration& registration) {
  const bool gathers = starting_.state() == Starting::State::kGathering;
  const proto::Workers& workers = job_.cluster().workers();
  const bool is_first = gathers && before_.term() <= 1;
  // Those who wait for the end take nobody's place.
  const int most = is_ending() ? std::numeric_limits<int>::max() : workers.max();
  absl::Status status = registry_.Check(registration, is_first ? workers.start() : most, now_);
  if (status.ok() && registration.has_worker()) {
    status = starting_.CheckData(registration.worker());
  }
  // One that goes on knows the run; that its term is no later one is the fault of a full disk,
  // which has not taken the number of the last.
  if (status.ok() && is_first && registration.has_last_term()) {
    RefuseToBegin(id, registration);
    return;
  }
  if (status.ok() && !gathers && registration.last_term() > before_.term()) {
    status = absl::FailedPreconditionError(
        absl::StrFormat("this process has taken part in term %d of its job; this one is in term %d",
                        registration.last_term(), before_.term()));
  }
  if (status.ok() && is_ending()) {
    if (registration.has_worker() && latecomers_.Add(id)) {
      out_.push_back(Log{absl::StrCat(PeerText(registration.process()),
                                      " comes when the training is over, and waits for the end")});
      return;
    }
    status = absl::UnavailableError("the training is over");
  }
  if (!status.ok()) {
    registry_.MarkGone(id);
    const std::string refused =
        absl::StrCat("refused ", PeerText(registration.process()), ": ", status.message());
    if (!absl::IsUnavailable(status)) starting_.OnRefused(refused);
    if (tells_refusal_.May(now_)) out_.push_back(Warn{refused});
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
          Log{absl::StrCat(Describe(*peer), " is here; waiting for ", AwaitedAtStart())});
    }
  } else {
    if (is_training()) change_.AddReason(absl::StrCat(Describe(*peer), " joins"));
    LetJoin();
  }
}

void Coordinator::RefuseToBegin(PeerId id, const proto::Registration& registration) {
  const std::string reason = absl::StrFormat(
      "%s (%s) has taken part in term %d of this job, and this server would begin it anew: start "
      "%s with --run-dir of the run that goes on, or end its other processes first",
      registration.has_worker() ? "a worker" : absl::StrCat("shard ", registration.shard()),
      PeerText(registration.process()), registration.last_term(), Name());
  is_over_ = true;
  for (const auto& [other, peer] : registry_.peers()) SendBack(other, reason);
  SendBack(id, reason);
  out_.push_back(coordinator::End{absl::FailedPreconditionError(reason)});
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
  const bool at_end = ending_.Awaits(id) && evaluation.unit() == ending_.unit();
  if (at_end && evaluation.is_final() && id != ending_.tester()) {
    ending_.OnAnswered(id, registry_, &out_);
    return;
  }
  if (evaluation.samples() <= 0) return;
  // Of the parameters at the end, from the one that is asked; others while the training goes on.
  const bool is_expected = !evaluation.is_final() &&
                           evaluations_->Expects(peer.worker, evaluation.unit(), work_->lineage());
  // One that tested the end before may have told of evaluation.split, and been lost.
  const bool is_repeated =
      at_end && !evaluation.is_final() && evaluations_->IsTold(evaluation.unit());
  if ((!at_end && !is_expected) || is_repeated) return;
  const MetricsLine line = work_->OnEvaluation(evaluation, now_);
  const bool is_told = !IsScript(job_) || evaluation.judged() > 0;
  if (is_told) out_.push_back(line);
  if (IsScript(job_)) {
    for (std::string& warning :
         evaluations_->OnPassed(peer.worker, line.step, is_told, evaluation.is_final())) {
      out_.push_back(Warn{std::move(warning)});
    }
  }
  if (evaluation.is_final()) {
    ending_.OnFinalTest(evaluation, line, *evaluations_, registry_, &summary_, &out_);
    return;
  }
  const std::optional<std::string> stop =
      evaluations_->OnResult(evaluation.unit(), is_told ? std::make_optional(line) : std::nullopt);
  if (ending_.state() == Ending::State::kTesting && !ending_.is_final()) {
    ending_.Test(&*evaluations_, &registry_, now_, &out_);
  }
  if (stop.has_value()) {
    On(coordinator::StopRequested{absl::OkStatus(), *stop, /*lasts=*/false});
  }
}

}  // namespace rubato
