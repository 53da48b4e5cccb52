#include "server/process/cluster_service.h"

#include <utility>

#include "absl/time/clock.h"
#include "common/wire/channel.h"

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
    CoordinatorActions actions;
    if (ok) {
      service_->coordinator_.OnMessage(id_, incoming_, absl::Now(), &actions);
      if (!finished_) StartRead(&incoming_);
      service_->Run(actions);
      return;
    }
    service_->coordinator_.OnPeerGone(id_, absl::Now(), &actions);
    service_->Run(actions);
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

ClusterService::ClusterService(RecordedCoordinator coordinator, Outlets outlets, const Log* log)
    : outlets_(std::move(outlets)), log_(log), coordinator_(std::move(coordinator)) {}

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
    coordinator_.OnHeartbeat({request->rank(), request->incarnation()}, absl::Now());
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
  CoordinatorActions actions;
  switch (request->kind()) {
    case proto::CommandRequest::KIND_CHECKPOINT:
      if (const absl::Status status = coordinator_.RequestCheckpoint(absl::Now(), &actions);
          status.ok()) {
        waiting_.push_back({reactor, reply});
      } else {
        reactor->Finish(ToGrpc(status));
      }
      break;
    case proto::CommandRequest::KIND_STOP:
      coordinator_.RequestStop(absl::OkStatus(), "asked to", absl::Now(), &actions);
      reply->set_text("the job is stopping");
      reactor->Finish(grpc::Status::OK);
      break;
    case proto::CommandRequest::KIND_STATUS:
      *reply->mutable_status() = coordinator_.core().Status(absl::Now());
      reactor->Finish(grpc::Status::OK);
      break;
    case proto::CommandRequest::KIND_SWITCH: {
      const Mode mode{request->mode(), request->staleness()};
      const absl::StatusOr<std::string> text =
          request->staleness() < 0 ? absl::InvalidArgumentError("staleness is below 0")
                                   : coordinator_.RequestSwitch(mode, absl::Now(), &actions);
      if (text.ok()) reply->set_text(*text);
      reactor->Finish(ToGrpc(text.status()));
      break;
    }
    default:
      reactor->Finish(grpc::Status(grpc::StatusCode::UNIMPLEMENTED, "no such command"));
  }
  Run(actions);
  return reactor;
}

void ClusterService::AnswerWaiting(const absl::StatusOr<std::string>& path) {
  for (const Waiting& waiting : waiting_) {
    if (path.ok()) waiting.reply->set_text(*path);
    waiting.reactor->Finish(ToGrpc(path.status()));
  }
  waiting_.clear();
}

void ClusterService::FromOwnShard(const proto::PeerMessage& message) {
  absl::MutexLock lock(&mutex_);
  CoordinatorActions actions;
  coordinator_.OnMessage(kOwnShard, message, absl::Now(), &actions);
  Run(actions);
}

void ClusterService::Fail(const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  CoordinatorActions actions;
  coordinator_.OnFailure(status, &actions);
  Run(actions);
}

void ClusterService::RequestStop(const absl::Status& end, const std::string& reason) {
  absl::MutexLock lock(&mutex_);
  CoordinatorActions actions;
  coordinator_.RequestStop(end, reason, absl::Now(), &actions);
  Run(actions);
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
      const CoordinatorAction task = std::move(tasks_.front());
      tasks_.pop_front();
      RunTask(task, tasks);
    }
    CoordinatorActions actions;
    coordinator_.OnTick(absl::Now(), &actions);
    Run(actions);
  }
  AnswerWaiting(absl::UnavailableError("the job has ended"));
  // Let the last messages leave; a peer that does not take its own is left behind.
  const auto all_gone = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return calls_.empty(); };
  mutex_.AwaitWithTimeout(absl::Condition(&all_gone), absl::Seconds(1));
  const absl::Status end = *end_;
  mutex_.Unlock();
  return end;
}

void ClusterService::RunTask(const CoordinatorAction& task, const Tasks& tasks) {
  const proto::View view = coordinator_.core().view();
  const Summary summary = coordinator_.core().summary();
  absl::Status status;
  absl::StatusOr<std::string> path;
  mutex_.Unlock();
  switch (task.kind) {
    case CoordinatorAction::Kind::kCollect:
      status = tasks.collect(view, task.version, summary);
      break;
    case CoordinatorAction::Kind::kRestore:
      status = tasks.restore(view);
      break;
    default:
      path = tasks.checkpoint(view, task.snapshot, task.manifest);
  }
  mutex_.Lock();
  CoordinatorActions actions;
  if (task.kind == CoordinatorAction::Kind::kCollect) {
    coordinator_.OnCollected(status, &actions);
  } else if (task.kind == CoordinatorAction::Kind::kCheckpoint) {
    coordinator_.OnCheckpointed(task.snapshot, path, absl::Now(), &actions);
    AnswerWaiting(path);
  } else if (!status.ok()) {
    coordinator_.OnFailure(status, &actions);
  }
  Run(actions);
}

void ClusterService::Run(const CoordinatorActions& actions) {
  for (const CoordinatorAction& action : actions) {
    switch (action.kind) {
      case CoordinatorAction::Kind::kSend: {
        if (action.peer == kOwnShard) {
          outlets_.to_own_shard(action.message);
          break;
        }
        const auto call = calls_.find(action.peer);
        if (call != calls_.end()) call->second->Send(action.message);
        break;
      }
      case CoordinatorAction::Kind::kLog:
        log_->Info(action.text);
        break;
      case CoordinatorAction::Kind::kWarn:
        log_->Warning(action.text);
        break;
      case CoordinatorAction::Kind::kMetrics:
        outlets_.metrics(action.metrics);
        break;
      case CoordinatorAction::Kind::kJournal:
        outlets_.journal(action.message.view(), action.text);
        break;
      case CoordinatorAction::Kind::kCollect:
      case CoordinatorAction::Kind::kRestore:
      case CoordinatorAction::Kind::kCheckpoint:
        tasks_.push_back(action);
        break;
      case CoordinatorAction::Kind::kEnd:
        end_ = action.end;
        break;
    }
  }
}

}  // namespace rubato
