#include "server/process/cluster_service.h"

#include <utility>

#include "absl/time/clock.h"
#include "common/wire/channel.h"
#include "server/coordinator/coordinator_record.h"

namespace rubato {

// One peer's call. gRPC calls OnReadDone, OnWriteDone and OnDone on threads of its own; all state
// is protected by the service's mutex. Starting an operation never blocks.
class ClusterService::Call
    : public grpc::ServerBidiReactor<proto::PeerMessage, proto::CoordinatorMessage> {
 public:
  Call(PeerId id, ClusterService* service) : id_(id), service_(service) { StartRead(&incoming_); }

  void Send(const proto::CoordinatorMessage& message) {
    service_->mutex_.AssertHeld();
    if (finished_) return;
    outbox_.push_back(message);
    if (!writing_) WriteNext();
  }

  void OnReadDone(bool ok) override {
    absl::MutexLock lock(&service_->mutex_);
    if (ok) {
      service_->Handle(coordinator::FromPeer{id_, std::move(incoming_)}).IgnoreError();
      if (!finished_) StartRead(&incoming_);
      return;
    }
    service_->Handle(coordinator::PeerGone{id_}).IgnoreError();
    peer_is_gone_ = true;
    if (!writing_) FinishOnce();
  }

  void OnWriteDone(bool) override {
    absl::MutexLock lock(&service_->mutex_);
    writing_ = false;
    if (!outbox_.empty() && !peer_is_gone_) {
      WriteNext();
    } else if (stop_sent_ || peer_is_gone_) {
      FinishOnce();
    }
  }

  void OnDone() override {
    {
      absl::MutexLock lock(&service_->mutex_);
      service_->calls_.erase(id_);
    }
    delete this;
  }

 private:
  void WriteNext() {
    writing_ = true;
    outgoing_ = std::move(outbox_.front());
    outbox_.pop_front();
    if (outgoing_.has_stop()) stop_sent_ = true;
    StartWrite(&outgoing_);
  }

  void FinishOnce() {
    if (finished_) return;
    finished_ = true;
    Finish(grpc::Status::OK);
  }

  const PeerId id_;
  ClusterService* const service_;
  proto::PeerMessage incoming_;
  proto::CoordinatorMessage outgoing_;
  std::deque<proto::CoordinatorMessage> outbox_;
  bool writing_ = false;
  bool stop_sent_ = false;
  bool peer_is_gone_ = false;
  bool finished_ = false;
};

ClusterService::ClusterService(Coordinator core, std::unique_ptr<RecordingWriter> recording,
                               Outlets outlets, const Log* log)
    : outlets_(std::move(outlets)),
      log_(log),
      core_(std::move(core)),
      recording_(std::move(recording)) {}

void ClusterService::SetToken(std::string token) {
  absl::MutexLock lock(&mutex_);
  token_ = std::move(token);
}

grpc::ServerBidiReactor<proto::PeerMessage, proto::CoordinatorMessage>* ClusterService::Join(
    grpc::CallbackServerContext*) {
  absl::MutexLock lock(&mutex_);
  const PeerId id = ++last_peer_;
  return calls_[id] = new Call(id, this);
}

grpc::ServerUnaryReactor* ClusterService::Heartbeat(grpc::CallbackServerContext* context,
                                                    const proto::HeartbeatRequest* request,
                                                    proto::HeartbeatReply*) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  {
    absl::MutexLock lock(&mutex_);
    Handle(coordinator::Heartbeat{{request->rank(), request->incarnation()}}).IgnoreError();
  }
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

grpc::ServerUnaryReactor* ClusterService::Command(grpc::CallbackServerContext* context,
                                                  const proto::CommandRequest* request,
                                                  proto::CommandReply* reply) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  absl::MutexLock lock(&mutex_);
  if (request->kind() != proto::CommandRequest::KIND_STATUS &&
      (token_.empty() || request->token() != token_)) {
    reactor->Finish(grpc::Status(
        grpc::StatusCode::PERMISSION_DENIED,
        request->token().empty()
            ? "this changes the job: it needs the run's token (the file `token` in the run's "
              "folder, or RUBATO_TOKEN in the environment)"
            : "the token is not this run's"));
    return reactor;
  }
  absl::StatusOr<std::string> text = "";
  switch (request->kind()) {
    case proto::CommandRequest::KIND_CHECKPOINT:
      text = Handle(coordinator::CheckpointRequested{});
      if (text.ok()) {
        waiting_.push_back({reactor, reply});
        return reactor;
      }
      break;
    case proto::CommandRequest::KIND_STOP:
      Handle(coordinator::StopRequested{absl::OkStatus(), "asked to"}).IgnoreError();
      text = "the job is stopping";
      break;
    case proto::CommandRequest::KIND_STATUS:
      *reply->mutable_status() = core_.Status(absl::Now());
      break;
    case proto::CommandRequest::KIND_SWITCH:
      text = request->staleness() < 0
                 ? absl::InvalidArgumentError("staleness is below 0")
                 : Handle(coordinator::SwitchRequested{{request->mode(), request->staleness()}});
      break;
    default:
      text = absl::UnimplementedError("no such command");
  }
  if (text.ok() && !text->empty()) reply->set_text(*text);
  reactor->Finish(ToGrpc(text.status()));
  return reactor;
}

void ClusterService::AnswerWaiting(const absl::StatusOr<std::string>& path) {
  for (const Waiting& waiting : waiting_) {
    if (path.ok()) waiting.reply->set_text(*path);
    waiting.reactor->Finish(ToGrpc(path.status()));
  }
  waiting_.clear();
}

void ClusterService::Post(const coordinator::Event& event) {
  absl::MutexLock lock(&mutex_);
  Handle(event).IgnoreError();
}

absl::Status ClusterService::Wait(const Tasks& tasks) {
  constexpr absl::Duration kTick = absl::Milliseconds(100);
  mutex_.Lock();
  while (!end_.has_value()) {
    const auto something_to_do = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return end_.has_value() || !tasks_.empty();
    };
    mutex_.AwaitWithTimeout(absl::Condition(&something_to_do), kTick);
    if (!tasks_.empty() && !end_.has_value()) {
      const Task task = std::move(tasks_.front());
      tasks_.pop_front();
      RunTask(task, tasks);
    }
    Handle(coordinator::Tick{}).IgnoreError();
  }
  AnswerWaiting(absl::UnavailableError("the job has ended"));
  // Let the last messages leave; a peer that does not take its own is left behind.
  const auto all_gone = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return calls_.empty(); };
  mutex_.AwaitWithTimeout(absl::Condition(&all_gone), absl::Seconds(1));
  const absl::Status end = *end_;
  mutex_.Unlock();
  return end;
}

namespace {

// Does a task and tells what has come of it, if the core is to hear of that: one overload for each.
struct Runner {
  const ClusterService::Tasks& tasks;
  const proto::View view;
  const Summary summary;

  std::optional<coordinator::Event> operator()(const coordinator::Collect& task) const {
    return coordinator::Collected{tasks.collect(view, task.version, summary)};
  }
  std::optional<coordinator::Event> operator()(const coordinator::Restore&) const {
    const absl::Status status = tasks.restore(view);
    if (status.ok()) return std::nullopt;
    return coordinator::Failed{status};
  }
  std::optional<coordinator::Event> operator()(const coordinator::WriteCheckpoint& task) const {
    return coordinator::Checkpointed{task.snapshot,
                                     tasks.checkpoint(view, task.snapshot, task.manifest)};
  }
};

}  // namespace

void ClusterService::RunTask(const Task& task, const Tasks& tasks) {
  const Runner runner{tasks, core_.view(), core_.summary()};
  mutex_.Unlock();
  const std::optional<coordinator::Event> event = std::visit(runner, task);
  mutex_.Lock();
  if (!event.has_value()) return;
  Handle(*event).IgnoreError();
  if (const auto* done = std::get_if<coordinator::Checkpointed>(&*event)) AnswerWaiting(done->path);
}

absl::StatusOr<std::string> ClusterService::Handle(const coordinator::Event& event) {
  answer_ = "";
  for (const coordinator::Outcome& outcome :
       coordinator::HandleAndRecord(event, absl::Now(), &core_, recording_.get())) {
    std::visit([this](const auto& what) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { Do(what); },
               outcome);
  }
  return answer_;
}

void ClusterService::Do(const coordinator::Send& send) {
  if (send.peer == kOwnShard) {
    outlets_.to_own_shard(send.message);
    return;
  }
  const auto call = calls_.find(send.peer);
  if (call != calls_.end()) call->second->Send(send.message);
}

void ClusterService::Do(const coordinator::Collect& task) { tasks_.push_back(task); }

void ClusterService::Do(const coordinator::Restore& task) { tasks_.push_back(task); }

void ClusterService::Do(const coordinator::WriteCheckpoint& task) { tasks_.push_back(task); }

void ClusterService::Do(const coordinator::End& end) { end_ = end.status; }

void ClusterService::Do(const coordinator::Answer& answer) { answer_ = answer.text; }

}  // namespace rubato
