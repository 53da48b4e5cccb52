#include "server/process/cluster_service.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/exit_code.h"
#include "common/base/lease.h"
#include "common/base/status.h"
#include "common/wire/channel.h"
#include "common/wire/control_client.h"
#include "common/wire/control_methods.h"
#include "common/wire/raw_message.h"
#include "server/coordinator/control_call.h"
#include "server/coordinator/coordinator_record.h"

namespace rubato {
namespace {

// Calls whose peers have not spoken yet. A peer registers as soon as it has called.
constexpr int kMaxSilent = 1024;

constexpr absl::Duration kUntilRest = absl::Seconds(1);

proto::CoordinatorMessage Refusal(absl::string_view reason) {
  proto::CoordinatorMessage message;
  message.mutable_stop()->set_exit_code(kExitFailure);
  message.mutable_stop()->set_refused(true);
  message.mutable_stop()->set_reason(std::string(reason));
  return message;
}

// A call that ends at once.
class EndedCall : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  explicit EndedCall(const absl::Status& why) { Finish(ToGrpc(why)); }
  void OnDone() override { delete this; }
};

absl::Status NoMessage() { return absl::InvalidArgumentError("the message cannot be parsed"); }

absl::Status NotFor(Role role, absl::string_view what) {
  return absl::PermissionDeniedError(
      absl::StrCat("the caller is the job's ", RoleName(role), ": ", what));
}

}  // namespace

// One peer's call. gRPC calls OnReadDone, OnWriteDone and OnDone on threads of its own; all state
// is protected by the service's mutex. Starting an operation never blocks.
class ClusterService::Call : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  Call(PeerId id, Role role, Connections::HasRead has_read, ClusterService* service)
      : id_(id),
        role_(role),
        has_read_(std::move(has_read)),
        service_(service),
        core_(MonotonicNow()) {
    StartSendInitialMetadata();  // the peer waits for it
    Proceed();
  }

  bool has_spoken() const { return core_.has_spoken(); }
  bool KeepsSilent(absl::Time now) const { return core_.KeepsSilent(now); }

  void OnTick() {
    core_.OnTick();
    Proceed();
  }

  void Send(const proto::CoordinatorMessage& message) {
    service_->mutex_.AssertHeld();
    core_.Push(message);
    Proceed();
  }

  void OnReadDone(bool ok) override {
    proto::PeerMessage message;
    if (ok && has_read_ != nullptr) *has_read_ = true;
    ok = ok && FromBytes(incoming_, &message);
    MonotonicLock lock(&service_->mutex_);
    if (ok && message.registration().has_shard() && role_ != Role::kServer) {
      Send(Refusal(NotFor(role_, "it takes part as no server").message()));
    } else {
      service_
          ->Handle(ok ? coordinator::Event(coordinator::FromPeer{id_, std::move(message)})
                      : coordinator::PeerGone{id_})
          .IgnoreError();
    }
    core_.OnRead(ok);
    Proceed();
  }

  void OnWriteDone(bool) override {
    MonotonicLock lock(&service_->mutex_);
    core_.OnWritten();
    Proceed();
  }

  void OnDone() override {
    {
      MonotonicLock lock(&service_->mutex_);
      service_->calls_.erase(id_);
    }
    delete this;
  }

 private:
  void Proceed() {
    for (ControlCall::Step step = core_.Next(); step != ControlCall::Step::kNone;
         step = core_.Next()) {
      if (step == ControlCall::Step::kRead) StartRead(&incoming_);
      if (step == ControlCall::Step::kWrite) {
        outgoing_ = ToBytes(core_.outgoing());
        StartWrite(&outgoing_);
      }
      if (step == ControlCall::Step::kFinish) Finish(grpc::Status::OK);
    }
  }

  const PeerId id_;
  const Role role_;
  const Connections::HasRead has_read_;  // null if nobody looks
  ClusterService* const service_;
  ControlCall core_;
  grpc::ByteBuffer incoming_, outgoing_;
};

ClusterService::ClusterService(Coordinator core, std::unique_ptr<RecordingWriter> recording,
                               Outlets outlets, const Log* log, const ConnectionOptions& connection)
    : outlets_(std::move(outlets)),
      log_(log),
      tick_(LeaseTick(connection.lease)),
      credentials_(connection.credentials),
      connections_(connection.connections),
      refusals_(connection.refusals),
      core_(std::move(core)),
      recording_(std::move(recording)) {}

void ClusterService::SetToken(std::string token) {
  MonotonicLock lock(&mutex_);
  commands_.SetToken(std::move(token));
}

absl::StatusOr<Role> ClusterService::Admit(const grpc::CallbackServerContext& context,
                                           absl::string_view method,
                                           Connections::HasRead* has_read) {
  absl::StatusOr<Role> role = credentials_.CheckCaller(context, method);
  if (role.ok() && connections_ != nullptr) {
    Connections::HasRead known = connections_->OnKnown(context.peer());
    if (has_read != nullptr) *has_read = std::move(known);
  }
  return role;
}

void ClusterService::Refuse(const grpc::CallbackServerContext& context, const absl::Status& why) {
  refusals_->Add(context.peer(), why, MonotonicNow());
}

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* ClusterService::Join(
    grpc::CallbackServerContext* context) {
  Connections::HasRead has_read;
  absl::StatusOr<Role> role = Admit(*context, kJoinMethod, &has_read);
  if (role.ok() && *role != Role::kWorker && *role != Role::kServer) {
    role = NotFor(*role, "it takes no part in the job");
  }
  if (!role.ok()) {
    Refuse(*context, role.status());
    return new EndedCall(role.status());
  }
  MonotonicLock lock(&mutex_);
  const PeerId id = ++last_peer_;
  Call* const call = calls_[id] = new Call(id, *role, std::move(has_read), this);
  const auto silent = std::count_if(calls_.begin(), calls_.end(),
                                    [](const auto& other) { return !other.second->has_spoken(); });
  if (silent > kMaxSilent) {
    call->Send(Refusal("too many processes have called and said nothing; try again later"));
  }
  return call;
}

grpc::ServerUnaryReactor* ClusterService::Heartbeat(grpc::CallbackServerContext* context,
                                                    const grpc::ByteBuffer* request,
                                                    grpc::ByteBuffer* reply) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const absl::Status status = [&]() -> absl::Status {
    RUBATO_ASSIGN_OR_RETURN(const Role role, Admit(*context, kHeartbeatMethod));
    proto::HeartbeatRequest beat;
    if (!FromBytes(*request, &beat)) return NoMessage();
    if (role != Role::kServer && (role != Role::kWorker || beat.has_shard())) {
      return NotFor(role, "it speaks for no such process");
    }
    *reply = ToBytes(proto::HeartbeatReply());
    MonotonicLock lock(&mutex_);
    Handle(coordinator::Heartbeat{beat}).IgnoreError();
    return absl::OkStatus();
  }();
  if (!status.ok()) Refuse(*context, status);
  reactor->Finish(ToGrpc(status));
  return reactor;
}

grpc::ServerUnaryReactor* ClusterService::Command(grpc::CallbackServerContext* context,
                                                  const grpc::ByteBuffer* request,
                                                  grpc::ByteBuffer* reply) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const absl::StatusOr<Role> role = Admit(*context, kCommandMethod);
  proto::CommandRequest command;
  if (!role.ok() || !FromBytes(*request, &command)) {
    const absl::Status status = role.ok() ? NoMessage() : role.status();
    Refuse(*context, status);
    reactor->Finish(ToGrpc(status));
    return reactor;
  }
  std::optional<bool> may_change;
  if (credentials_.asks_callers()) may_change = *role == Role::kOperator || *role == Role::kServer;
  MonotonicLock lock(&mutex_);
  commands_.Handle(
      command, may_change,
      [this](const coordinator::Event& event)
          ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return Handle(event); },
      [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        proto::JobStatus status = core_.Status(MonotonicNow());
        status.set_refused(status.refused() + refusals_->count());
        status.set_coordinator(ProcessDescription());
        return status;
      },
      [reactor, reply](const absl::StatusOr<proto::CommandReply>& answer) {
        if (answer.ok()) *reply = ToBytes(*answer);
        reactor->Finish(ToGrpc(answer.status()));
      });
  return reactor;
}

void ClusterService::Post(const coordinator::Event& event) {
  MonotonicLock lock(&mutex_);
  Handle(event).IgnoreError();
}

void ClusterService::Ask(std::shared_ptr<void> asked) {
  absl::MutexLock lock(&ask_mutex_);
  if (ticks_) asked_.swap(asked);
}

void ClusterService::OnTicked(bool goes_on) {
  std::shared_ptr<void> asked;  // goes when the mutex is free
  absl::MutexLock lock(&ask_mutex_);
  ticks_ = goes_on;
  asked_.swap(asked);
}

absl::Status ClusterService::Wait(const Tasks& tasks) {
  std::thread worker([this, &tasks] { RunTasks(tasks); });
  OnTicked(/*goes_on=*/true);
  mutex_.Lock();
  const auto is_over = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return end_.has_value(); };
  while (!mutex_.AwaitFor(absl::Condition(&is_over), tick_)) {
    Handle(coordinator::Tick{}).IgnoreError();
    TickCalls();
    OnTicked(/*goes_on=*/true);
  }
  OnTicked(/*goes_on=*/false);
  commands_.OnCheckpoint(absl::UnavailableError(
      lost_shard_.has_value() ? "the job goes back to an earlier checkpoint: ask again"
                              : "the job has ended"));
  // Let the last messages leave; a peer that does not take its own is left behind.
  const auto all_gone = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return calls_.empty(); };
  mutex_.AwaitFor(absl::Condition(&all_gone), absl::Milliseconds(500));
  const absl::Status end = *end_;
  mutex_.Unlock();
  if (tasks.stop) tasks.stop();
  worker.join();
  return end;
}

bool ClusterService::AwaitCheckpointOrEnd(absl::Duration patience) {
  proto::CommandRequest request;
  request.set_kind(proto::CommandRequest::KIND_CHECKPOINT);
  const auto answer = std::make_shared<std::optional<absl::Status>>();
  MonotonicLock lock(&mutex_);
  commands_.Handle(
      request, /*may_change=*/true,
      [this](const coordinator::Event& event)
          ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return Handle(event); },
      [] { return proto::JobStatus(); },
      [answer](const absl::StatusOr<proto::CommandReply>& reply) { *answer = reply.status(); });
  const bool is_refused = answer->has_value();
  if (is_refused && !core_.has_begun()) return end_.has_value();  // there is nothing to save
  const auto is_done = [this, is_refused, &answer]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return end_.has_value() || (!is_refused && answer->has_value());
  };
  mutex_.AwaitFor(absl::Condition(&is_done), patience);
  return end_.has_value();
}

int ClusterService::Untold() const {
  return core_.absent() - static_cast<int>(last_peer_ - last_before_end_);
}

int ClusterService::untold() {
  MonotonicLock lock(&mutex_);
  return Untold();
}

void ClusterService::TellOfEnd(absl::Duration patience, absl::FunctionRef<bool()> stops) {
  constexpr absl::Duration kTick = absl::Milliseconds(100);
  const absl::Time deadline = MonotonicNow() + patience;
  MonotonicLock lock(&mutex_);
  const auto all_told = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return calls_.empty() && Untold() <= 0;
  };
  while (!mutex_.AwaitFor(absl::Condition(&all_told), kTick) && MonotonicNow() < deadline &&
         !stops()) {
    TickCalls();
  }
}

void ClusterService::TickCalls() {
  for (const auto& [id, call] : calls_) {
    if (call->KeepsSilent(MonotonicNow())) {
      call->Send(Refusal("this process has called and not registered"));
    }
    call->OnTick();
  }
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
  std::optional<coordinator::Event> operator()(const coordinator::Restore& task) const {
    const absl::Status status = tasks.restore(view, task.shards);
    if (status.ok()) return std::nullopt;
    return coordinator::Failed{status};
  }
  std::optional<coordinator::Event> operator()(const coordinator::SaveValues& task) const {
    return coordinator::ValuesSaved{tasks.save_values(task)};
  }
  std::optional<coordinator::Event> operator()(const coordinator::WriteCheckpoint& task) const {
    return coordinator::Checkpointed{task.snapshot, tasks.checkpoint(view, task)};
  }
};

}  // namespace

void ClusterService::RunTasks(const Tasks& tasks) {
  MonotonicLock lock(&mutex_);
  const auto something_to_do = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return end_.has_value() || !tasks_.empty();
  };
  while (true) {
    if (!mutex_.AwaitFor(absl::Condition(&something_to_do), kUntilRest)) {
      mutex_.Unlock();
      if (tasks.rest) tasks.rest();
      mutex_.Lock();
      continue;
    }
    if (end_.has_value()) return;
    const Task task = std::move(tasks_.front());
    tasks_.pop_front();
    RunTask(task, tasks);
  }
}

void ClusterService::RunTask(const Task& task, const Tasks& tasks) {
  const Runner runner{tasks, core_.view(), core_.summary()};
  mutex_.Unlock();
  const std::optional<coordinator::Event> event = std::visit(runner, task);
  mutex_.Lock();
  if (!event.has_value()) return;
  const bool is_older_than_wanted = core_.wants_checkpoint();
  Handle(*event).IgnoreError();
  const auto* const done = std::get_if<coordinator::Checkpointed>(&*event);
  if (done != nullptr && !is_older_than_wanted) commands_.OnCheckpoint(done->path);
}

absl::StatusOr<std::string> ClusterService::Handle(const coordinator::Event& event) {
  answer_ = "";
  for (const coordinator::Outcome& outcome :
       coordinator::HandleAndRecord(event, MonotonicNow(), &core_, recording_.get())) {
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

Summary ClusterService::summary() {
  MonotonicLock lock(&mutex_);
  return core_.summary();
}

void ClusterService::Do(const coordinator::Collect& task) { tasks_.push_back(task); }

void ClusterService::Do(const coordinator::Restore& task) { tasks_.push_back(task); }

void ClusterService::Do(const coordinator::SaveValues& task) { tasks_.push_back(task); }

void ClusterService::Do(const coordinator::WriteCheckpoint& task) { tasks_.push_back(task); }

void ClusterService::Do(const coordinator::End& end) {
  end_ = end.status;
  lost_shard_ = end.lost_shard;
  last_before_end_ = last_peer_;
}

std::optional<int> ClusterService::lost_shard() {
  MonotonicLock lock(&mutex_);
  return lost_shard_;
}

bool ClusterService::has_trained() {
  MonotonicLock lock(&mutex_);
  return core_.has_trained();
}

std::optional<ClusterService::Place> ClusterService::place() {
  MonotonicLock lock(&mutex_);
  if (!core_.has_begun()) return std::nullopt;
  return Place{core_.samples(), core_.seconds()};
}

void ClusterService::Do(const coordinator::Answer& answer) { answer_ = answer.text; }

}  // namespace rubato
