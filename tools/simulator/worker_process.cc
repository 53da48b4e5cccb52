#include "tools/simulator/worker_process.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "common/space/job_codec.h"

namespace rubato {

namespace {

// As in worker/process/worker.cc.
constexpr SimTime kStreamFailureGrace = 2 * kSecond;
constexpr SimTime kBetweenTries = 200 * kMillisecond;

}  // namespace

WorkerProcess::WorkerProcess(const WorkerSetting* setting, int index,
                             std::unique_ptr<WorkerModel> model)
    : setting_(*setting), index_(index), model_(std::move(model)) {}

void WorkerProcess::Start(ProcessId self) {
  self_ = self;
  Join();
}

void WorkerProcess::Join() {
  ++part_;
  model_->OnJoin();
  takes_part_ = true;
  stream_broke_ = waits_for_work_ = false;
  loop_.emplace(*setting_.job);
  control_ = setting_.network->Connect(self_, setting_.coordinator);
  proto::PeerMessage message;
  proto::Registration* registration = message.mutable_registration();
  registration->set_version(setting_.version);
  registration->set_job_digest(setting_.job_digest);
  registration->set_process(absl::StrCat("simulated worker ", index_));
  *registration->mutable_worker() = setting_.registration;
  registration->mutable_worker()->set_rank(index_);
  Tell(std::move(message));
}

void WorkerProcess::EndPart(bool joins_anew) {
  takes_part_ = false;
  const bool took_part = !streams_.empty();
  setting_.network->Close(control_, self_);
  for (const ConnectionId stream : streams_) setting_.network->Close(stream, self_);
  control_ = -1;
  streams_.clear();
  mailbox_.clear();
  tests_.clear();
  missing_blocks_ = 0;
  ended_ = !joins_anew || leaving_;
  if (!ended_) {
    SetTimer(kJoinAnew, setting_.network->now() + (took_part ? 0 : kBetweenTries));
  }
}

void WorkerProcess::Leave() {
  asked_to_leave_ = true;
  if (!ended_) SetTimer(kLeaveNow, setting_.network->now());
}

WorkerId WorkerProcess::id() const {
  if (ended_ || streams_.empty()) return {-1, 0};
  return {loop_->me().rank(), loop_->me().incarnation()};
}

void WorkerProcess::Tell(proto::PeerMessage message) {
  setting_.network->Send(control_, self_, SimMessage::ToCoordinator(std::move(message)));
}

void WorkerProcess::OnMessage(ConnectionId connection, SimMessage&& message) {
  if (ended_ || !takes_part_) return;
  if (message.kind == SimMessage::Kind::kParameters) {
    OnParameters(message);
  } else if (connection == control_) {
    mailbox_.push_back({Mail::Kind::kCoordinator, message.from_coordinator()});
    ReadMail();
  }
}

void WorkerProcess::ReadMail() {
  if (!mailbox_.empty()) Interrupt();
  while (!computing_.has_value() && !mailbox_.empty() && !ended_) {
    const Mail mail = std::move(mailbox_.front());
    mailbox_.pop_front();
    proto::PeerMessage failure;
    WorkerLoop::Actions actions;
    switch (mail.kind) {
      case Mail::Kind::kCoordinator:
        OnCoordinator(*mail.message);
        break;
      case Mail::Kind::kControlBroke:
        EndPart(/*joins_anew=*/true);
        break;
      case Mail::Kind::kStreamBroke:
        if (stream_broke_) break;
        stream_broke_ = true;
        SetTimer(kGrace, setting_.network->now() + kStreamFailureGrace);
        break;
      case Mail::Kind::kGraceIsOver:  // the coordinator has not ended the job
        failure.mutable_failure()->set_exit_code(1);
        failure.mutable_failure()->set_reason("its connection to a shard broke");
        Tell(std::move(failure));
        EndPart(/*joins_anew=*/true);
        break;
      case Mail::Kind::kLeave:
        leaving_ = true;
        if (streams_.empty()) {
          EndPart(/*joins_anew=*/false);
          break;
        }
        loop_->OnLeave(&actions);
        RunActions(actions);
        break;
    }
  }
  MaybeBeginEarly();
}

void WorkerProcess::MaybeBeginEarly() {
  // The first block has the first layer.
  if (ended_ || !takes_part_ || computing_.has_value() || !mailbox_.empty() ||
      missing_blocks_ == 0 || missing_[0] || passed_) {
    return;
  }
  WorkerLoop::Actions actions;
  loop_->OnSomeParameters(pull_, &actions);
  RunActions(actions);
}

void WorkerProcess::Interrupt() {
  if (!std::exchange(began_early_, false)) return;
  computing_.reset();
  --computations_;
  loop_->OnInterrupted();
}

void WorkerProcess::OnBroken(ConnectionId connection) {
  if (ended_ || !takes_part_) return;
  if (connection == control_) {
    Post(Mail::Kind::kControlBroke);
  } else if (std::count(streams_.begin(), streams_.end(), connection) > 0) {
    Post(Mail::Kind::kStreamBroke);
  }
}

void WorkerProcess::OnCoordinator(const proto::CoordinatorMessage& message) {
  WorkerLoop::Actions actions;
  switch (message.kind_case()) {
    case proto::CoordinatorMessage::kView:
      OnView(message.view(), &actions);
      break;
    case proto::CoordinatorMessage::kWork:
      waits_for_work_ = false;
      loop_->OnWork(message.work(), &actions);
      break;
    case proto::CoordinatorMessage::kEvaluationRequest:
      if (!streams_.empty()) loop_->OnEvaluationRequest(message.evaluation_request(), &actions);
      break;
    case proto::CoordinatorMessage::kStop:
      EndPart(message.stop().evicted() ||
              (has_taken_part_ && message.stop().refused() && message.stop().exit_code() == 1));
      return;
    default:
      return;
  }
  RunActions(actions);
}

void WorkerProcess::OnView(const proto::View& view, WorkerLoop::Actions* actions) {
  if (streams_.empty()) {
    has_taken_part_ = true;
    ++parts_;
    for (const ProcessId shard : setting_.shards) {
      streams_.push_back(setting_.network->Connect(self_, shard));
    }
    versions_.assign(setting_.blocks->placement.space().blocks(), 0);
    missing_.assign(setting_.blocks->placement.space().blocks(), false);
  }
  loop_->OnView(view, actions);
}

void WorkerProcess::OnParameters(const SimMessage& message) {
  const Frame& frame = message.frame;
  const int64_t block = static_cast<int64_t>(frame.block);
  // A second copy, or an answer to an older pull.
  if (frame.unit != pull_ || missing_blocks_ == 0 || !missing_[block]) return;
  if (loop_->sync() && static_cast<int64_t>(frame.version) < pull_clock_) {
    setting_.on_failure(absl::InternalError(
        absl::StrFormat("worker %d was sent version %d of block %d; expected at least %d", index_,
                        frame.version, block, pull_clock_)));
    return;
  }
  model_->OnBlock(block, message.content);
  pulled_bytes_ += message.bytes - kFrameHeaderBytes;
  versions_[block] = static_cast<int64_t>(frame.version);
  if (setting_.observer != nullptr) {
    setting_.observer->OnTaken(block, id(), loop_->view().lineage(), versions_[block]);
  }
  staleness_sum_ += frame.staleness;
  if (loop_->sync() && static_cast<int64_t>(frame.version) > pull_clock_) passed_ = true;
  missing_[block] = false;
  --missing_blocks_;
  if (passed_) Interrupt();
  if (missing_blocks_ > 0) {
    MaybeBeginEarly();
    return;
  }
  staleness_ = static_cast<double>(staleness_sum_) /
               static_cast<double>(setting_.blocks->placement.space().blocks());
  const bool goes_on = std::exchange(began_early_, false);
  WorkerLoop::Actions actions;
  loop_->OnParameters(pull_, passed_, &actions);
  RunActions(actions);
  if (goes_on) GoOnComputing();
}

void WorkerProcess::OnTimer(uint64_t argument) {
  if (ended_) return;
  const Timer timer = static_cast<Timer>(argument & 0xff);
  if (timer == kLeaveNow) {
    if (takes_part_) {
      Post(Mail::Kind::kLeave);
    } else {
      ended_ = true;
    }
    return;
  }
  if (argument >> 8 != part_) return;  // of what it took part in before
  switch (timer) {
    case kComputed:
      FinishCompute();
      break;
    case kTested:
      if (tests_.empty()) break;
      Tell(std::move(tests_.front()));
      tests_.pop_front();
      break;
    case kGrace:
      if (takes_part_) Post(Mail::Kind::kGraceIsOver);
      break;
    default:
      Join();
  }
}

void WorkerProcess::RunActions(const WorkerLoop::Actions& actions) {
  for (const WorkerLoop::Action& action : actions) {
    std::visit([this](const auto& what) { Run(what); }, action);
  }
}

void WorkerProcess::Run(const WorkerLoop::RequestWork& request) {
  waits_for_work_ = true;
  proto::PeerMessage message;
  message.mutable_work_request()->set_applied(request.applied);
  Tell(std::move(message));
}

void WorkerProcess::Run(const WorkerLoop::SayIdle& idle) {
  proto::PeerMessage message;
  message.mutable_idle()->set_view(loop_->view().number());
  message.mutable_idle()->set_applied(idle.applied);
  Tell(std::move(message));
}

void WorkerProcess::Run(const WorkerLoop::Leave& leave) {
  proto::PeerMessage message;
  message.mutable_leave()->set_reason("asked to");
  message.mutable_leave()->set_applied(leave.applied);
  Tell(std::move(message));
}

void WorkerProcess::Run(const WorkerLoop::Pull& pull) {
  const Placement& placement = setting_.blocks->placement;
  if (pull.retire && setting_.observer != nullptr) {
    setting_.observer->OnRetired(id(), loop_->view().lineage());
  }
  pull_ = pull.number;
  pull_clock_ = pull.clock;
  passed_ = false;
  missing_blocks_ = placement.space().blocks();
  missing_.assign(missing_blocks_, true);
  staleness_sum_ = 0;
  for (int shard = 0; shard < placement.shards(); ++shard) {
    const Range blocks = placement.Blocks(shard);
    if (blocks.empty()) continue;
    SimMessage message;
    message.kind = SimMessage::Kind::kPull;
    message.bytes = kFrameHeaderBytes;
    Frame& frame = message.frame;
    frame.kind = pull.retire ? FrameKind::kRetire : FrameKind::kPull;
    frame.unit = pull.number;
    frame.view = loop_->view().number();
    frame.worker = pull.observer ? kObserver : static_cast<uint32_t>(loop_->view().your_rank());
    frame.block = static_cast<uint64_t>(blocks.begin);
    frame.block_count = static_cast<uint32_t>(blocks.size());
    frame.clock = static_cast<uint64_t>(pull.clock);
    frame.codec = pull.observer ? Codec::kFloat32 : PullCodec(*setting_.job);
    setting_.network->Send(streams_[shard], self_, std::move(message));
  }
}

int64_t WorkerProcess::Samples(int64_t unit, Range leaves) const {
  int64_t samples = 0;
  for (int64_t leaf = leaves.begin; leaf < leaves.end; ++leaf) {
    samples += loop_->schedule().MicroBatch(unit, leaf).positions.size();
  }
  return samples;
}

void WorkerProcess::Run(const WorkerLoop::Compute& action) {
  RUBATO_CHECK(!computing_.has_value());
  computing_ = action;
  compute_start_ = setting_.network->now();
  const proto::Train& train = setting_.job->train();
  const double micro_batches =
      static_cast<double>(Samples(action.unit, action.leaves)) /
      (static_cast<double>(train.batch_size()) / static_cast<double>(train.micro_batches()));
  const double seconds =
      setting_.speeds->Seconds(index_, computations_++,
                               static_cast<double>(setting_.micro_batch_time) * 1e-9) *
      micro_batches;
  compute_time_ = static_cast<SimTime>(std::min(seconds * 1e9, static_cast<double>(kLongest)));
  began_early_ = action.early;
  if (!began_early_) GoOnComputing();
}

// A third of it is forward, which may be over; backward begins now.
void WorkerProcess::GoOnComputing() {
  if (setting_.observer != nullptr) {
    setting_.observer->OnComputeBegins(id(), loop_->view().lineage(), computing_->unit,
                                       computing_->clock, compute_start_);
  }
  const SimTime backward = compute_time_ - compute_time_ / 3;
  SetTimer(kComputed, std::max(compute_start_ + compute_time_, setting_.network->now() + backward));
}

void WorkerProcess::FinishCompute() {
  const WorkerLoop::Compute action = *std::move(computing_);
  computing_.reset();
  const SimTime now = setting_.network->now();
  computing_time_ += now - compute_start_;
  const proto::View& view = loop_->view();
  proto::PeerMessage told;
  proto::Progress* progress = told.mutable_progress();
  progress->set_unit(action.unit);
  progress->set_first_leaf(action.leaves.begin);
  progress->set_clock(action.clock);
  progress->set_staleness(staleness_);
  for (const Range& node : action.nodes) {
    const int64_t samples = Samples(action.unit, node);
    const absl::Status status = model_->Compute(
        loop_->schedule(), action.unit, node, !loop_->sync(),
        [&](int64_t block, Content content) {
          SimMessage message;
          message.kind = SimMessage::Kind::kPush;
          message.bytes = BytesOf(content, setting_.blocks->push_bytes[block]);
          pushed_bytes_ += message.bytes - kFrameHeaderBytes;
          Frame& frame = message.frame;
          frame.kind = FrameKind::kPush;
          frame.view = view.number();
          frame.worker = static_cast<uint32_t>(view.your_rank());
          frame.lineage = view.lineage();
          frame.incarnation = loop_->me().incarnation();
          frame.block = static_cast<uint64_t>(block);
          frame.clock = static_cast<uint64_t>(action.clock);
          frame.unit = static_cast<uint64_t>(action.unit);
          frame.version = static_cast<uint64_t>(versions_[block]);
          frame.first_leaf = static_cast<uint32_t>(node.begin);
          frame.end_leaf = static_cast<uint32_t>(node.end);
          frame.samples = static_cast<uint32_t>(samples);
          frame = HeaderOf(frame, content.floats);
          message.content = std::move(content);
          if (setting_.observer != nullptr) setting_.observer->OnPushed(frame);
          setting_.network->Send(streams_[setting_.blocks->placement.ShardOf(block)], self_,
                                 std::move(message));
        },
        progress);
    if (!status.ok()) {  // the coordinator will end the job
      proto::PeerMessage failure;
      failure.mutable_failure()->set_exit_code(1);
      failure.mutable_failure()->set_reason(std::string(status.message()));
      failure.mutable_failure()->set_non_finite(true);
      Tell(std::move(failure));
      return;
    }
    if (progress->left_out()) break;
  }
  const bool left_out = progress->left_out();
  progress->set_pushed_bytes(std::exchange(pushed_bytes_, 0));
  progress->set_pulled_bytes(std::exchange(pulled_bytes_, 0));
  if (setting_.observer != nullptr) {
    if (left_out) {
      setting_.observer->OnLeftOut(loop_->view().lineage(), action.unit);
    } else {
      setting_.observer->OnComputeEnds(id(), loop_->view().lineage(), action.unit, action.clock,
                                       now);
    }
  }
  Tell(std::move(told));
  WorkerLoop::Actions actions;
  if (left_out) {
    loop_->OnLeftOut(&actions);
  } else {
    loop_->OnComputed(&actions);
  }
  RunActions(actions);
  ReadMail();
}

void WorkerProcess::Run(const WorkerLoop::Test& action) {
  proto::PeerMessage message;
  message.mutable_evaluation()->set_unit(action.unit);
  message.mutable_evaluation()->set_is_final(action.is_final);
  model_->Evaluate(message.mutable_evaluation());
  tests_.push_back(std::move(message));
  test_free_ = std::max(test_free_, setting_.network->now()) + setting_.test_time;
  SetTimer(kTested, test_free_);
}

std::string WorkerProcess::State() const {
  if (ended_) return "ended";
  if (!setting_.network->alive(self_)) return "is dead";
  if (!takes_part_) return "waits to join anew";
  if (computing_.has_value() && !began_early_) {
    return absl::StrCat("computes unit ", computing_->unit);
  }
  std::string state;
  if (streams_.empty()) state = "waits to become a member";
  if (missing_blocks_ > 0) {
    absl::StrAppend(&state, "waits at clock ", pull_clock_, " for block");
    int shown = 0;
    for (size_t block = 0; block < missing_.size(); ++block) {
      if (missing_[block] && ++shown <= 4) {
        absl::StrAppend(&state, " ", block, " of shard ",
                        setting_.blocks->placement.ShardOf(static_cast<int64_t>(block)));
      }
    }
    if (shown > 4) absl::StrAppend(&state, " and ", shown - 4, " more");
  }
  if (waits_for_work_) absl::StrAppend(&state, state.empty() ? "" : ", ", "waits for work");
  if (!tests_.empty()) absl::StrAppend(&state, state.empty() ? "" : ", ", "tests");
  return state.empty() ? "waits for the coordinator" : state;
}

}  // namespace rubato
