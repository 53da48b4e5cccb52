#include "worker/session/worker_session.h"

#include <algorithm>
#include <utility>

#include "common/base/exit_code.h"
#include "common/base/lease.h"
#include "common/base/status.h"
#include "common/space/job_codec.h"

namespace rubato {
namespace {

// A stream that breaks is a symptom: a shard has died, or the job is over. The coordinator sees it
// at about the same time, and tells within this. If it does not, only this worker is cut off, and
// the others wait for it: with what keep-alive takes (common/base/lease.h), a lease and a second
// at most.
constexpr absl::Duration kStreamFailureGrace = absl::Milliseconds(400);
// A coordinator that has answered no heartbeat for as long as silence is borne tells nothing. Who
// stood still itself has an answer within this.
constexpr absl::Duration kHeartbeatAnswers = absl::Milliseconds(100);

constexpr absl::Duration kBetweenTries = absl::Milliseconds(200);
// Who joins costs the others two views, its coming and its going. So one whose streams break soon
// after that, again and again, waits twice as long each time, up to this: the coordinator may reach
// a shard that it does not. Soon is what is less than this.
constexpr absl::Duration kLongestPause = absl::Seconds(5);

// Of kStopGrace, one that is to leave goes on for so long while it tests: that it has gone would
// cost the result.
constexpr absl::Duration kTestGrace = absl::Seconds(20);
// For the coordinator to hear that a worker leaves amid its step.
constexpr absl::Duration kLastWord = absl::Seconds(1);

// While its place may still be held by what it was before, and while a cut may heal: as long as a
// process waits for the others at its start.
absl::Duration PatienceOf(const proto::Job& job) {
  return std::max(absl::Seconds(job.cluster().start_timeout()),
                  2 * absl::Seconds(job.cluster().lease()) + absl::Seconds(1));
}

}  // namespace

WorkerSession::WorkerSession(const proto::Job& job, int64_t values,
                             std::optional<Placement> instead, PolicyFactory policies,
                             absl::Duration ahead)
    : job_(job),
      values_(values),
      instead_(std::move(instead)),
      policies_(std::move(policies)),
      ahead_(ahead),
      patience_(PatienceOf(job)) {}

WorkerSession::Outcomes WorkerSession::Handle(const Event& event, absl::Time now) {
  now_ = now;
  outcomes_.clear();
  if (state_ != State::kEnded) std::visit([this](const auto& what) { On(what); }, event);
  return std::move(outcomes_);
}

void WorkerSession::On(const Started&) { Join(absl::Seconds(job_.cluster().start_timeout())); }

void WorkerSession::Join(absl::Duration patience) {
  state_ = State::kJoining;
  loop_.emplace(job_, policies_);
  deadline_ = absl::InfiniteFuture();
  has_parameters_ = was_stopped_ = false;
  registered_at_ = member_since_ = absl::InfiniteFuture();
  stream_failure_ = diverged_ = absl::OkStatus();
  const absl::Duration lease = absl::Seconds(job_.cluster().lease());
  const absl::Duration longest_mute =
      std::max(absl::ZeroDuration(), heard_at_ + BorneSilence(lease) - now_);
  outcomes_.emplace_back(Connect{patience, cut_off_, servers_, longest_mute, last_term_});
}

void WorkerSession::On(const NotConnected& event) {
  // Why it was left alone says more.
  const bool is_alone = absl::IsDeadlineExceeded(event.status) || absl::IsUnavailable(event.status);
  EndWith(is_alone && !cut_off_.ok() ? cut_off_ : event.status);
}

void WorkerSession::On(const Registered&) { registered_at_ = now_; }

// A call to nobody breaks within a lease, and a stream to nobody within that and a second. A member
// may have nothing to compute, and so no parameters.
bool WorkerSession::HasTakenItsPlace() const {
  const absl::Duration lease = absl::Seconds(job_.cluster().lease());
  if (is_member()) return now_ - member_since_ > 2 * lease + absl::Seconds(1);
  return state_ == State::kJoining && now_ - registered_at_ > lease;
}

void WorkerSession::On(const FromCoordinator& event) {
  if (state_ == State::kCutOff) return;
  heard_at_ = now_;
  const proto::CoordinatorMessage& message = *event.message;
  WorkerLoop::Actions actions;
  switch (message.kind_case()) {
    case proto::CoordinatorMessage::kView:
      OnView(message.view());
      break;
    case proto::CoordinatorMessage::kWork:
      if (is_member()) loop_->OnWork(message.work(), &actions);
      break;
    case proto::CoordinatorMessage::kEvaluationRequest:
      if (is_member()) loop_->OnEvaluationRequest(message.evaluation_request(), &actions);
      break;
    case proto::CoordinatorMessage::kEndTests:
      if (is_member()) loop_->OnEndTests(&actions);
      break;
    case proto::CoordinatorMessage::kValuesRequest: {
      const Range values = {message.values_request().begin(), message.values_request().end()};
      if (0 <= values.begin && values.begin < values.end && values.end <= values_) {
        outcomes_.emplace_back(GiveValues{values});
      }
      break;
    }
    case proto::CoordinatorMessage::kStop:
      OnStop(message.stop());
      break;
    default:
      break;  // not for workers
  }
  Run(actions);
}

void WorkerSession::OnView(const proto::View& view) {
  if (std::none_of(view.members().begin(), view.members().end(),
                   [&](const auto& member) { return member.rank() == view.your_rank(); })) {
    EndPart(absl::InternalError("the coordinator sent a view without this worker"), false);
    return;
  }
  absl::StatusOr<Placement> placement = PlacementOf(view);
  if (!placement.ok()) {
    EndPart(placement.status(), /*may_join_anew=*/false);
    return;
  }
  if (!is_member()) placement_ = *std::move(placement);
  servers_ = ShardAddresses(view);
  if (view.lineage() != loop_->view().lineage()) {
    computed_at_.reset();
    between_.reset();
  }
  WorkerLoop::Actions actions;
  loop_->OnView(view, &actions);
  outcomes_.emplace_back(UseView{});
  if (!is_member()) {
    outcomes_.emplace_back(OpenStreams{});
    member_since_ = now_;
  }
  state_ = State::kMember;
  has_taken_part_ = true;
  last_term_ = view.term();
  Run(actions);
}

absl::StatusOr<Placement> WorkerSession::PlacementOf(const proto::View& view) const {
  if (instead_.has_value()) return *instead_;
  RUBATO_ASSIGN_OR_RETURN(Placement placement, Placement::Of(job_, view));
  if (placement.space().values() != values_) {
    return absl::InvalidArgumentError("the coordinator sent a view of another model");
  }
  return placement;
}

void WorkerSession::OnStop(const proto::Stop& stop) {
  was_stopped_ = true;
  if (stop.goes_back()) servers_.clear();  // the next view says where they are
  // Back before it was noticed that it had been away; and not told of its own failure.
  const bool comes_too_early =
      has_taken_part_ && diverged_.ok() && stop.refused() && stop.exit_code() == kExitFailure;
  EndPart(ToldToStop(stop.exit_code(), stop.reason(), stop.refused()),
          stop.goes_back() || stop.evicted() || comes_too_early);
}

// It breaks without a word when nothing has come for a lease.
void WorkerSession::On(const CallBroke& event) {
  heard_at_ = absl::InfinitePast();
  if (state_ == State::kCutOff) return;
  EndPart(diverged_.ok() ? event.status : diverged_, /*may_join_anew=*/diverged_.ok());
}

void WorkerSession::On(const StreamBroke& event) {
  if (!is_member() || !stream_failure_.ok()) return;
  stream_failure_ = StoppedByOthers(event.status);
  grace_ends_ = now_ + kStreamFailureGrace;
  WaitNoLongerThan(kHeartbeatAnswers);
}

void WorkerSession::On(const Failed& event) {
  if (is_member()) EndPart(event.status, /*may_join_anew=*/false);
}

void WorkerSession::On(const SomeArrived& event) {
  if (!is_member() || now_ >= deadline_) return;
  WorkerLoop::Actions actions;
  loop_->OnSomeParameters(event.pull, &actions);
  Run(actions);
}

void WorkerSession::On(const AllArrived& event) {
  if (!is_member()) return;
  has_parameters_ = true;
  staleness_ = event.arrived.staleness;
  version_ = event.arrived.version;
  WorkerLoop::Actions actions;
  loop_->OnParameters(event.arrived.number, event.arrived.passed, &actions);
  Run(actions);
}

void WorkerSession::On(const Interrupted&) { loop_->OnInterrupted(); }

void WorkerSession::On(const Sending&) {
  WorkerLoop::Actions actions;
  loop_->OnSending(&actions);
  Run(actions);
}

void WorkerSession::On(const Computed& event) {
  SendToCoordinator send;
  proto::Progress* progress = send.message.mutable_progress();
  *progress = event.progress;
  progress->set_unit(computing_.unit);
  progress->set_first_leaf(computing_.leaves.begin);
  progress->set_clock(computing_.clock);
  progress->set_staleness(staleness_);
  outcomes_.emplace_back(std::move(send));
  WorkerLoop::Actions actions;
  if (event.progress.left_out()) {
    loop_->OnLeftOut(&actions);
  } else {
    if (policy().on_arrival()) PlanAhead();
    loop_->OnComputed(&actions);
  }
  Run(actions);
}

// What is short at first, or once in a while, says little: the mean moves by an eighth.
void WorkerSession::PlanAhead() {
  if (computed_at_.has_value()) {
    const absl::Duration last = now_ - *computed_at_;
    between_ = between_.has_value() ? *between_ + (last - *between_) / 8 : last;
    absl::Duration rest;
    loop_->SetAhead(
        std::clamp<int64_t>(absl::IDivDuration(ahead_, *between_, &rest), 1, kMostAhead));
  }
  computed_at_ = now_;
}

void WorkerSession::On(const Tested& event) {
  if (!is_member() || event.is_final != tests_final_) return;
  if (leaves_when_tested_) Leave();
  WorkerLoop::Actions actions;
  loop_->OnTested(&actions);
  Run(actions);
}

// Leaves it to the coordinator to end the job.
void WorkerSession::On(const Diverged& event) {
  diverged_ = absl::AbortedError(event.reason);
  SendFailure(diverged_, /*non_finite=*/true);
  WaitNoLongerThan(kStopGrace);
}

// Leaves the others to go on: first what it has begun. Until its test is done it works on, for they
// would wait for its share of the work.
void WorkerSession::On(const AskedToLeave& event) {
  if (!asked_to_leave_.ok()) return;
  asked_to_leave_ = event.why;
  if (!is_member()) {
    EndPart(asked_to_leave_, /*may_join_anew=*/false);
    return;
  }
  leaves_by_ = now_ + kStopGrace;
  leaves_when_tested_ = loop_->tests();
  if (leaves_when_tested_) {
    WaitNoLongerThan(kTestGrace);
  } else {
    Leave();
  }
}

void WorkerSession::Leave() {
  leaves_when_tested_ = false;
  const bool is_cut_off = !stream_failure_.ok() || !diverged_.ok();
  deadline_ = is_cut_off ? std::min(deadline_, leaves_by_) : leaves_by_;
  WorkerLoop::Actions actions;
  loop_->OnLeave(&actions);
  Run(actions);
}

void WorkerSession::On(const DeadlinePassed& event) {
  if (now_ < deadline_) return;
  heard_at_ = std::max(heard_at_, event.heard_at);
  const bool is_heard = now_ - heard_at_ < BorneSilence(absl::Seconds(job_.cluster().lease()));
  if (state_ == State::kCutOff) {
    Join(patience_);
  } else if (!stream_failure_.ok() && is_heard && now_ < grace_ends_) {
    deadline_ = grace_ends_;
  } else if (leaves_when_tested_ && stream_failure_.ok() && diverged_.ok()) {
    Leave();
  } else if (SaysThatItLeaves()) {
    deadline_ = now_ + kLastWord;
  } else {
    // The coordinator has not ended the job: only this worker was cut off.
    const absl::Status& status = diverged_.ok() ? stream_failure_ : diverged_;
    EndPart(status, absl::IsUnavailable(status));
  }
}

// Others are not to take it for lost, where its step does not come to an end in time.
bool WorkerSession::SaysThatItLeaves() {
  if (asked_to_leave_.ok() || !stream_failure_.ok() || !diverged_.ok() || !loop_.has_value()) {
    return false;
  }
  WorkerLoop::Actions actions;
  loop_->LeaveAtOnce(&actions);
  Run(actions);
  return !actions.empty();
}

void WorkerSession::EndPart(absl::Status status, bool may_join_anew) {
  if (!asked_to_leave_.ok()) status = asked_to_leave_;
  if (!status.ok() && !was_stopped_ && state_ != State::kCutOff) {
    SendFailure(status, /*non_finite=*/false);
  }
  const bool was_member = is_member();
  if (has_parameters_ || cut_off_.ok() || HasTakenItsPlace()) gives_up_at_ = now_ + patience_;
  if (state_ != State::kCutOff) outcomes_.emplace_back(Disconnect{});
  state_ = State::kCutOff;
  if (!may_join_anew || !asked_to_leave_.ok() || now_ >= gives_up_at_) {
    EndWith(status);
    return;
  }
  cut_off_ = status;
  absl::Duration pause = was_member ? absl::ZeroDuration() : kBetweenTries;
  if (was_member && now_ - member_since_ >= kLongestPause) pause_ = absl::ZeroDuration();
  if (was_member && !stream_failure_.ok() && !was_stopped_) {
    pause = pause_;
    heard_at_ += pause;  // meanwhile it does not listen
    pause_ = std::clamp(2 * pause_, kBetweenTries, kLongestPause);
  }
  deadline_ = std::min(now_ + pause, gives_up_at_);
  if (pause == absl::ZeroDuration()) Join(patience_);
}

void WorkerSession::EndWith(const absl::Status& status) {
  state_ = State::kEnded;
  deadline_ = absl::InfiniteFuture();
  outcomes_.emplace_back(End{status});
}

void WorkerSession::SendFailure(const absl::Status& status, bool non_finite) {
  SendToCoordinator send;
  proto::Failure* failure = send.message.mutable_failure();
  failure->set_exit_code(ExitCode(status));
  failure->set_reason(std::string(status.message()));
  if (non_finite) failure->set_non_finite(true);
  outcomes_.emplace_back(std::move(send));
}

void WorkerSession::Run(const WorkerLoop::Actions& actions) {
  for (const WorkerLoop::Action& action : actions) {
    std::visit([this](const auto& what) { Run(what); }, action);
  }
}

void WorkerSession::Run(const WorkerLoop::Pull& pull) {
  outcomes_.reserve(outcomes_.size() + 1 + placement_->shards());
  outcomes_.emplace_back(
      StartPull{{pull.number, pull.clock, policy().blocks_in_step(), pull.observer}});
  SendFrame send;
  Frame& frame = send.frame;
  frame.kind = pull.retire ? FrameKind::kRetire : FrameKind::kPull;
  frame.unit = pull.number;
  frame.view = view().number();
  frame.worker = pull.observer ? kObserver : static_cast<uint32_t>(view().your_rank());
  frame.clock = static_cast<uint64_t>(pull.clock);
  // The final test is of what is in force.
  frame.codec = pull.observer ? Codec::kFloat32 : PullCodec(job_);
  for (send.shard = 0; send.shard < placement_->shards(); ++send.shard) {
    const Range blocks = placement_->Blocks(send.shard);
    if (blocks.empty()) continue;
    frame.set_blocks(blocks);
    outcomes_.emplace_back(send);
  }
}

void WorkerSession::Run(const Compute& compute) {
  computing_ = compute;
  outcomes_.emplace_back(compute);
}

void WorkerSession::Run(const Test& test) {
  if (!test.only_keeps) tests_final_ = test.is_final;
  outcomes_.emplace_back(test);
  std::get<Test>(outcomes_.back()).version = version_;
}

void WorkerSession::Run(const WorkerLoop::RequestWork& request) {
  SendToCoordinator send;
  send.message.mutable_work_request()->set_applied(request.applied);
  if (request.count > 1) {
    send.message.mutable_work_request()->set_count(static_cast<int32_t>(request.count));
  }
  outcomes_.emplace_back(std::move(send));
}

void WorkerSession::Run(const WorkerLoop::SayIdle& idle) {
  SendToCoordinator send;
  send.message.mutable_idle()->set_view(view().number());
  send.message.mutable_idle()->set_applied(idle.applied);
  outcomes_.emplace_back(std::move(send));
}

void WorkerSession::Run(const WorkerLoop::Leave& leave) {
  SendToCoordinator send;
  send.message.mutable_leave()->set_reason(std::string(asked_to_leave_.message()));
  send.message.mutable_leave()->set_applied(leave.applied);
  outcomes_.emplace_back(std::move(send));
}

Frame WorkerSession::PushOf(const Compute& compute, Range node) const {
  Frame frame;
  frame.kind = FrameKind::kPush;
  frame.view = view().number();
  frame.worker = static_cast<uint32_t>(view().your_rank());
  frame.lineage = view().lineage();
  frame.incarnation = me().incarnation();
  frame.clock = static_cast<uint64_t>(compute.clock);
  frame.unit = static_cast<uint64_t>(compute.unit);
  frame.first_leaf = static_cast<uint32_t>(node.begin);
  frame.end_leaf = static_cast<uint32_t>(node.end);
  frame.samples = static_cast<uint32_t>(schedule().Samples(compute.unit, node));
  frame.weight = frame.samples;
  return frame;
}

}  // namespace rubato
