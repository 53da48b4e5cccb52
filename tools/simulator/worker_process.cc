#include "tools/simulator/worker_process.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/base/bytes.h"
#include "common/base/check.h"
#include "tools/simulator/coordinator_process.h"
#include "tools/simulator/symbol.h"
#include "tools/simulator/symbolic_values.h"

namespace rubato {
namespace {

// How often it looks whether the coordinator can be reached.
constexpr SimTime kBetweenCalls = 100 * kMillisecond;

// For how long it looks (common/wire/reach.cc).
constexpr SimTime kLook = 400 * kMillisecond;

}  // namespace

WorkerProcess::WorkerProcess(const WorkerSetting* setting, int index,
                             std::unique_ptr<WorkerModel> model)
    : setting_(*setting),
      index_(index),
      model_(std::move(model)),
      session_(*setting->job, setting->blocks->placement.space().values(),
               setting->blocks->placement, setting->policies, absl::Nanoseconds(setting->ahead)),
      ends_(setting->network, StreamCore::Side::kWorker, setting->streams, setting->judge, this) {}

void WorkerProcess::Start(ProcessId self) {
  self_ = self;
  ends_.SetSelf(self);
  Handle(Session::Started{});
}

void WorkerProcess::Leave() {
  asked_to_leave_ = true;
  if (!ended()) SetTimer(kLeave, setting_.network->now());
}

WorkerId WorkerProcess::id() const {
  if (!session_.is_member()) return {-1, 0};
  return {session_.me().rank(), session_.me().incarnation()};
}

uint32_t WorkerProcess::term() const { return session_.is_member() ? session_.view().term() : 0; }

Observer* WorkerProcess::observer() const {
  return setting_.observer == nullptr ? nullptr : setting_.observer->OfTerm(session_.view().term());
}

SimTime WorkerProcess::busy() const {
  const VirtualNetwork& network = *setting_.network;
  if (!computing_.has_value() || began_early_) return network.Holds(self_);
  return network.now() - std::max(compute_start_, had_parameters_at_);
}

void WorkerProcess::Post(Session::Event event) {
  mailbox_.push_back(std::move(event));
  ReadMail();
}

// As the real one's mailbox: its deadline has passed only where no other event waits.
void WorkerProcess::ReadMail() {
  const auto is_late = [this] { return ToTime(setting_.network->now()) >= session_.deadline(); };
  if (!mailbox_.empty() || is_late()) Interrupt();
  while (!computing_.has_value() && (!mailbox_.empty() || is_late())) {
    Session::Event event = Session::DeadlinePassed{ToTime(heard_at_)};
    if (!mailbox_.empty()) {
      event = std::move(mailbox_.front());
      mailbox_.pop_front();
    }
    Handle(event);
  }
  MaybeBeginEarly();
}

void WorkerProcess::Handle(const Session::Event& event) {
  VirtualStreams::Batch batch(&ends_);
  for (const Session::Outcome& outcome : session_.Handle(event, ToTime(setting_.network->now()))) {
    std::visit([this](const auto& what) { Run(what); }, outcome);
  }
  if (session_.deadline() == deadline_) return;
  deadline_ = session_.deadline();
  if (deadline_ != absl::InfiniteFuture()) SetTimer(kDeadline, FromTime(deadline_));
}

void WorkerProcess::OnMessage(ConnectionId connection, SimMessage&& message) {
  if (message.kind == SimMessage::Kind::kParameters) {
    ends_.OnMessage(connection, std::move(message));
  } else if (connection == control_) {
    if (message.from_coordinator()->has_work()) TellOfGiven(message.from_coordinator()->work());
    Post(Session::FromCoordinator{message.from_coordinator()});
  }
}

void WorkerProcess::TellOfGiven(const proto::Work& work) {
  if (!session_.is_member() || observer() == nullptr) return;
  int64_t given = work.has_contribution() ? 1 : 0;
  for (const proto::Work& next : work.then()) given += next.has_contribution() ? 1 : 0;
  observer()->OnGiven(id(), session_.view().lineage(), given);
}

void WorkerProcess::OnBroken(ConnectionId connection) {
  if (connection == control_) {
    Post(Session::CallBroke{absl::UnavailableError("the coordinator (shard 0) is gone")});
  } else if (std::count(streams_.begin(), streams_.end(), connection) > 0) {
    broken_since_ = std::min(broken_since_, setting_.network->now());
    ends_.OnBroken(connection);
  }
}

void WorkerProcess::OnFrame(ConnectionId stream, SimMessage&& message) {
  // Streams are numbered in turn.
  if (!streams_.empty()) OnParameters(stream - streams_.front(), message);
}

void WorkerProcess::OnGone(ConnectionId stream) {
  const auto shard = std::find(streams_.begin(), streams_.end(), stream) - streams_.begin();
  Post(Session::StreamBroke{
      absl::UnavailableError(absl::StrCat("its connection to shard ", shard, " broke"))});
}

void WorkerProcess::OnTimer(uint64_t argument) {
  const Timer timer = static_cast<Timer>(argument & 0xff);
  if (timer == kLeave) {
    Post(Session::AskedToLeave{absl::CancelledError("asked to")});
    return;
  }
  if (ended() || argument >> 8 != part_) return;  // of what it took part in before
  switch (timer) {
    case kComputed:
      FinishCompute();
      break;
    case kTested:
      if (results_.empty()) break;
      OnTested();
      break;
    case kHeld:
      TellHeld();
      break;
    case kDeadline:
      ReadMail();
      break;
    default:
      TryToConnect();
  }
}

void WorkerProcess::Run(const Session::Connect& connect) {
  ++part_;
  has_diverged_ = false;
  model_->OnJoin();
  connects_until_ = setting_.network->now() + absl::ToInt64Nanoseconds(connect.patience);
  connects_again_ = !connect.servers.empty();
  last_term_ = connect.last_term;
  longest_mute_ = std::max(absl::ToInt64Nanoseconds(connect.longest_mute), kLook);
  mute_since_ = kNever;
  TryToConnect();
}

// Servers that come back may have ended; those that stand still may not be known to have.
bool WorkerProcess::Reaches(ProcessId server) const {
  const VirtualNetwork& network = *setting_.network;
  if (!comes_back()) return network.Reaches(self_, server);
  return !network.alive(server) || (network.Reaches(self_, server) && network.Runs(server));
}

bool WorkerProcess::ReachesServers() const {
  return setting_.network->Reaches(self_, setting_.coordinator) &&
         (!connects_again_ || std::all_of(setting_.shards.begin(), setting_.shards.end(),
                                          [this](ProcessId shard) { return Reaches(shard); }));
}

absl::Status WorkerProcess::LookAtServers() {
  if (comes_back()) return absl::OkStatus();  // however long it takes
  const VirtualNetwork& network = *setting_.network;
  size_t gone = 0, mute = 0;
  for (const ProcessId server : setting_.shards) {
    if (!network.Reaches(self_, server)) continue;
    gone += network.alive(server) ? 0 : 1;
    mute += network.alive(server) && !network.Runs(server) ? 1 : 0;
  }
  const bool is_coordinator_mute = network.Reaches(self_, setting_.coordinator) &&
                                   network.alive(setting_.coordinator) &&
                                   !network.Runs(setting_.coordinator);
  if (is_coordinator_mute && gone > 0) {
    return absl::AbortedError("the coordinator (shard 0) says nothing");
  }
  const bool are_mute = is_coordinator_mute && mute == setting_.shards.size();
  mute_since_ = are_mute ? std::min(mute_since_, network.now()) : kNever;
  if (are_mute && network.now() - mute_since_ >= longest_mute_) {
    return absl::UnavailableError("the servers say nothing");
  }
  return absl::OkStatus();
}

void WorkerProcess::TryToConnect() {
  VirtualNetwork& network = *setting_.network;
  // Its host says so.
  if (!comes_back() && connects_again_ && ReachesServers() &&
      !network.alive(setting_.coordinator)) {
    Post(Session::NotConnected{absl::UnavailableError("the coordinator has ended")});
    return;
  }
  if (const absl::Status over = LookAtServers(); connects_again_ && !over.ok()) {
    servers_stand_still_ = true;
    Post(Session::NotConnected{over});
    return;
  }
  if (!ReachesServers() || !network.Runs(setting_.coordinator)) {
    if (network.now() < connects_until_) {
      SetTimer(kConnect, network.now() + kBetweenCalls);
    } else {
      Post(Session::NotConnected{
          absl::DeadlineExceededError("the coordinator (shard 0) does not answer")});
    }
    return;
  }
  control_ = network.Connect(self_, setting_.coordinator);
  proto::PeerMessage message;
  proto::Registration* registration = message.mutable_registration();
  registration->set_version(setting_.version);
  registration->set_job_digest(setting_.job_digest);
  registration->set_process(absl::StrCat(setting_.name, " ", index_));
  attempt_ += uint64_t{1} << 32;
  registration->set_attempt(attempt_);
  if (last_term_ > 0) registration->set_last_term(last_term_);
  *registration->mutable_worker() = setting_.registration;
  registration->mutable_worker()->set_rank(index_);
  Tell(std::move(message));
  Post(Session::Registered{});
}

void WorkerProcess::Run(const Session::OpenStreams&) {
  for (const ProcessId shard : setting_.shards) {
    streams_.push_back(setting_.network->Connect(self_, shard));
    ends_.Open(streams_.back(), session_.view().term());
  }
  const Placement& placement = session_.placement();
  blocks_.emplace(placement, placement.space().BlockValues(0));  // which has the first layer
}

void WorkerProcess::Tell(proto::PeerMessage message) {
  TellHeld();
  if (control_ < 0) return;
  setting_.network->Send(control_, self_, SimMessage::ToCoordinator(std::move(message)));
}

void WorkerProcess::TellHeld() {
  for (auto& [message, since] : std::exchange(held_, {})) {
    message.set_held_seconds(1e-9 * static_cast<double>(setting_.network->now() - since));
    Tell(std::move(message));
  }
}

void WorkerProcess::Run(const Session::SendToCoordinator& send) {
  if (send.message.has_work_request() && observer() != nullptr) {
    observer()->OnAsked(id(), session_.view().lineage(), send.message.work_request().count());
  }
  if (!send.message.has_progress() || setting_.held_back == 0) return Tell(send.message);
  if (held_.empty()) SetTimer(kHeld, setting_.network->now() + setting_.held_back);
  held_.emplace_back(send.message, setting_.network->now());
}

void WorkerProcess::Run(const Session::SendFrame& send) {
  if (send.frame.kind == FrameKind::kRetire && observer() != nullptr) {
    observer()->OnRetired(id(), session_.view().lineage());
  }
  SimMessage message;
  message.kind = SimMessage::Kind::kPull;
  message.bytes = kFrameHeaderBytes;
  message.frame = send.frame;
  if (send.frame.worker != kObserver) message.frame.version = attempt_;
  ends_.Send(streams_[send.shard], std::move(message));
}

void WorkerProcess::Run(const Session::GiveValues& give) {
  const std::vector<float> values =
      GivenValues(setting_.job->seed(), index_, setting_.blocks->placement.space());
  proto::PeerMessage message;
  message.mutable_initial_values()->set_begin(give.values.begin);
  message.mutable_initial_values()->set_values(std::string(
      AsBytes(absl::MakeConstSpan(values).subspan(give.values.begin, give.values.size()))));
  Tell(std::move(message));
}

void WorkerProcess::Run(const Session::Disconnect&) {
  if (!streams_.empty()) took_part_until_ = setting_.network->now();
  if (control_ >= 0) setting_.network->Close(control_, self_);
  for (const ConnectionId stream : streams_) ends_.Close(stream);
  control_ = -1;
  held_.clear();
  streams_.clear();
  broken_since_ = kNever;
  blocks_.reset();
  results_.clear();
  mailbox_.clear();  // of what is over
  if (asked_to_leave_) mailbox_.push_back(Session::AskedToLeave{absl::CancelledError("asked to")});
}

void WorkerProcess::Run(const Session::End& end) {
  end_ = end.status;
  ended_at_ = setting_.network->now();
  setting_.on_end(index_, end.status);
}

void WorkerProcess::OnParameters(int shard, const SimMessage& message) {
  const Frame& frame = message.frame;
  const int64_t block = static_cast<int64_t>(frame.block);
  const absl::StatusOr<bool> wanted = blocks_->Wants(shard, frame);
  if (!wanted.ok()) {
    setting_.on_failure(absl::InternalError(absl::StrCat("reads: ", wanted.status().message())));
  }
  if (!wanted.ok() || !*wanted) return;
  model_->OnBlock(block, message.content);
  blocks_->Add(frame, message.bytes - kFrameHeaderBytes);
  if (observer() != nullptr) {
    observer()->OnTaken(block, id(), session_.view().lineage(), blocks_->version(block));
  }
  if (blocks_->ReadableNow({}) == PulledBlocks::Readable::kNever) Interrupt();
  if (blocks_->missing() > 0) {
    MaybeBeginEarly();
    return;
  }
  had_parameters_at_ = setting_.network->now();
  if (std::exchange(began_early_, false)) {
    Handle(Session::AllArrived{blocks_->arrived()});
    GoOnComputing();
  } else {
    Post(Session::AllArrived{blocks_->arrived()});
  }
}

void WorkerProcess::MaybeBeginEarly() {
  if (!blocks_.has_value() || computing_.has_value() || !mailbox_.empty()) return;
  if (blocks_->MayBegin()) Handle(Session::SomeArrived{blocks_->pull().number});
}

void WorkerProcess::Interrupt() {
  if (!std::exchange(began_early_, false)) return;
  computing_.reset();
  --computations_;
  Handle(Session::Interrupted{});
}

void WorkerProcess::Run(const Session::Compute& compute) {
  RUBATO_CHECK(!computing_.has_value());
  computing_ = compute;
  compute_start_ = setting_.network->now();
  int64_t samples = 0;
  for (const Range& node : compute.nodes) samples += session_.PushOf(compute, node).samples;
  const proto::Train& train = setting_.job->train();
  const double micro_batches =
      static_cast<double>(samples) /
      (static_cast<double>(train.batch_size()) / static_cast<double>(train.micro_batches()));
  const double seconds =
      setting_.speeds->Seconds(index_, computations_++,
                               static_cast<double>(setting_.micro_batch_time) * 1e-9) *
      micro_batches;
  compute_time_ = static_cast<SimTime>(std::min(seconds * 1e9, static_cast<double>(kLongest)));
  began_early_ = compute.early;
  if (!began_early_) GoOnComputing();
}

// A third of it is forward, which may be over; backward begins now.
void WorkerProcess::GoOnComputing() {
  if (observer() != nullptr) {
    observer()->OnComputeBegins(id(), session_.view().lineage(), computing_->unit,
                                computing_->clock, compute_start_);
  }
  const SimTime backward = compute_time_ - compute_time_ / 3;
  SetTimer(kComputed, std::max(compute_start_ + compute_time_, setting_.network->now() + backward));
}

void WorkerProcess::FinishCompute() {
  const Session::Compute compute = *std::move(computing_);
  computing_.reset();
  computed_at_ = setting_.network->now();
  computing_time_ += computed_at_ - compute_start_;
  Session::Computed computed;
  proto::Progress& progress = computed.progress;
  int64_t pushed_bytes = 0;
  for (const Range& node : compute.nodes) {
    Frame header = session_.PushOf(compute, node);
    header.weight = static_cast<uint32_t>(model_->Weight(session_.schedule(), compute.unit, node));
    bool pulls = setting_.pulls_ahead && node == compute.nodes.back();
    const absl::Status status = model_->Compute(
        session_.schedule(), compute.unit, node, session_.policy(),
        [&](int64_t block, Content content) {
          if (std::exchange(pulls, false)) Handle(Session::Sending{});
          pushed_bytes += Push(header, block, std::move(content));
        },
        &progress);
    if (!status.ok()) {
      if (observer() != nullptr) {
        // The blocks that have left were computed with all of them.
        for (int64_t block = 0; block < session_.placement().space().blocks(); ++block) {
          header.block = static_cast<uint64_t>(block);
          header.version = static_cast<uint64_t>(blocks_->version(block));
          observer()->OnPushed(header);
        }
        observer()->OnDiverged(index_);
      }
      has_diverged_ = true;
      Handle(Session::Diverged{std::string(status.message())});
      ReadMail();
      return;
    }
    if (progress.left_out()) break;
  }
  progress.set_pushed_bytes(pushed_bytes);
  progress.set_pulled_bytes(blocks_->TakeBytes());
  if (observer() != nullptr) {
    const uint32_t lineage = session_.view().lineage();
    if (progress.left_out()) {
      observer()->OnLeftOut(lineage, compute.unit);
    } else {
      observer()->OnComputeEnds(id(), lineage, compute.unit, compute.clock, computed_at_);
    }
  }
  Handle(computed);
  ReadMail();
}

int64_t WorkerProcess::Push(const Frame& header, int64_t block, Content content) {
  SimMessage message;
  message.kind = SimMessage::Kind::kPush;
  message.bytes = BytesOf(content, setting_.blocks->push_bytes[block]);
  const int64_t payload_bytes = message.bytes - kFrameHeaderBytes;
  message.frame = content.floats == nullptr ? header : HeaderOf(header, *content.floats);
  message.frame.block = static_cast<uint64_t>(block);
  message.frame.version = static_cast<uint64_t>(blocks_->version(block));
  message.content = std::move(content);
  if (observer() != nullptr) observer()->OnPushed(message.frame);
  ends_.Send(streams_[session_.placement().ShardOf(block)], std::move(message));
  return payload_bytes;
}

// Beside the computations.
void WorkerProcess::Run(const Session::Test& test) {
  if (test.only_keeps) {
    proto::PeerMessage message;
    message.mutable_evaluation()->set_unit(test.unit);
    message.mutable_evaluation()->set_is_final(true);
    return Tell(std::move(message));
  }
  SimTime tested = setting_.network->now() + setting_.test_time;
  for (proto::EvaluationResult& result : model_->Test(test.unit, test.is_final)) {
    if (!test.is_final) result.set_version(test.version);
    if (result.is_final()) tested += setting_.final_test_time;
    results_.push_back(std::move(result));
    SetTimer(kTested, tested);
  }
}

void WorkerProcess::OnTested() {
  proto::PeerMessage message;
  *message.mutable_evaluation() = std::move(results_.front());
  results_.pop_front();
  Tell(message);
  if (setting_.on_half_tested && !results_.empty() && results_.front().is_final()) {
    setting_.on_half_tested(this);
  }
  Post(Session::Tested{message.evaluation().is_final()});
}

SimTime WorkerProcess::left_alone_since() const {
  const bool may_act = setting_.network->Runs(self_) && !computing_.has_value();
  return may_act && broken_since_ != kNever ? std::max(broken_since_, computed_at_) : kNever;
}

SimTime WorkerProcess::gave_up_after() const {
  const bool gave_up = ended() && !end_->ok() && !asked_to_leave_ && !servers_stand_still_ &&
                       !has_diverged_ && had_parameters_at_ != kNever &&
                       setting_.network->alive(self_) &&
                       setting_.network->alive(setting_.coordinator);
  return gave_up ? ended_at_ - had_parameters_at_ : kNever;
}

std::string WorkerProcess::State() const {
  if (ended()) return "ended";
  if (!setting_.network->alive(self_)) return "is dead";
  if (control_ < 0) return "waits to join anew";
  if (computing_.has_value() && !began_early_) {
    return absl::StrCat("computes unit ", computing_->unit);
  }
  if (!session_.is_member()) return "waits to become a member";
  std::string state;
  if (blocks_->missing() > 0) {
    absl::StrAppend(&state, "waits at clock ", blocks_->pull().clock, " for ", blocks_->missing(),
                    " blocks");
    for (int64_t block = 0, shown = 0; block < session_.placement().space().blocks(); ++block) {
      if (!blocks_->is_missing(block) || ++shown > 4) continue;
      absl::StrAppend(&state, ", ", block, " of shard ", session_.placement().ShardOf(block));
    }
  }
  if (session_.waits_for_work())
    absl::StrAppend(&state, state.empty() ? "" : ", ", "waits for work");
  if (!results_.empty()) absl::StrAppend(&state, state.empty() ? "" : ", ", "tests");
  return state.empty() ? "waits for the coordinator" : state;
}

}  // namespace rubato
