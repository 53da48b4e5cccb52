// The calls of the coordinator's peers and of those who command it, on a completion queue of its
// own.
#include <pthread.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "common/base/exit_code.h"
#include "common/base/status.h"
#include "common/wire/channel.h"
#include "common/wire/control_client.h"
#include "common/wire/control_methods.h"
#include "common/wire/raw_message.h"
#include "server/coordinator/control_call.h"
#include "server/process/cluster_service.h"

namespace rubato {
namespace {

// Calls whose peers have not spoken yet. A peer registers as soon as it has called.
constexpr int kMaxSilent = 1024;

proto::CoordinatorMessage Refusal(absl::string_view reason) {
  proto::CoordinatorMessage message;
  message.mutable_stop()->set_exit_code(kExitFailure);
  message.mutable_stop()->set_refused(true);
  message.mutable_stop()->set_reason(std::string(reason));
  return message;
}

absl::Status NoMessage() { return absl::InvalidArgumentError("the message cannot be parsed"); }

absl::Status NotFor(Role role, absl::string_view what) {
  return absl::PermissionDeniedError(
      absl::StrCat("the caller is the job's ", RoleName(role), ": ", what));
}

}  // namespace

// One peer's call, first waited for. All state is protected by the service's mutex. Beginning an
// operation never blocks.
class ClusterService::Call {
 public:
  explicit Call(ClusterService* service) : service_(service) {
    came_ = [this](bool ok) {
      if (ok) {
        service_->OnJoin(this);
      } else {  // the server is shutting down
        Ended([this] { is_finishing_ = true; });
      }
    };
    greeted_ = [this](bool) { Ended([this] { is_greeted_ = true; }); };
    read_ = [this](bool ok) { OnRead(ok); };
    written_ = [this](bool) { Ended([this] { core_->OnWritten(); }); };
    finished_ = [this](bool) { Ended([] {}); };
    grpc::ServerCompletionQueue* const queue = service->queue_.get();
    service->RequestJoin(&context_, &stream_, queue, queue, &came_);
  }

  const grpc::ServerContext& context() const { return context_; }

  // When it has come: one of the two.
  void Begin(PeerId id, Role role, Connections::HasRead has_read) {
    service_->mutex_.AssertHeld();
    id_ = id;
    role_ = role;
    has_read_ = std::move(has_read);
    core_.emplace(MonotonicNow());
    stream_.SendInitialMetadata(&greeted_);  // the peer waits for it
  }
  void Refuse(const absl::Status& why) {
    service_->mutex_.AssertHeld();
    is_finishing_ = true;
    stream_.Finish(ToGrpc(why), &finished_);
  }

  bool has_spoken() const { return core_->has_spoken(); }
  bool KeepsSilent(absl::Time now) const { return core_->KeepsSilent(now); }

  void OnTick() {
    core_->OnTick();
    Proceed();
  }

  void Send(const proto::CoordinatorMessage& message) {
    service_->mutex_.AssertHeld();
    core_->Push(message);
    Proceed();
  }

 private:
  void OnRead(bool ok) {
    proto::PeerMessage message;
    if (ok && has_read_ != nullptr) *has_read_ = true;
    ok = ok && FromBytes(incoming_, &message) && message.then_size() < ControlCall::kMaxTogether;
    google::protobuf::RepeatedPtrField<proto::PeerMessage> then;  // goes when the mutex is free
    then.Swap(message.mutable_then());
    Ended([&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(service_->mutex_) {
      if (ok) {
        Take(std::move(message));
        for (proto::PeerMessage& next : then) Take(std::move(next));
      } else {
        service_->Handle(coordinator::PeerGone{id_}).IgnoreError();
      }
      core_->OnRead(ok, 1 + then.size());
    });
  }

  void Take(proto::PeerMessage message) {
    service_->mutex_.AssertHeld();
    message.clear_then();
    if (message.registration().has_shard() && role_ != Role::kServer) {
      core_->Push(Refusal(NotFor(role_, "it takes part as no server").message()));
    } else {
      service_->Handle(coordinator::FromPeer{id_, std::move(message)}).IgnoreError();
    }
  }

  // An operation has ended, of which comes `what`. The call goes with its last one.
  void Ended(absl::FunctionRef<void()> what) {
    {
      MonotonicLock lock(&service_->mutex_);
      what();
      --operations_;
      Proceed();
      if (!is_finishing_ || operations_ > 0) return;
      service_->calls_.erase(id_);
      --service_->open_joins_;
    }
    delete this;
  }

  void Proceed() {
    if (!is_greeted_ || is_finishing_) return;
    for (ControlCall::Step step = core_->Next(); step != ControlCall::Step::kNone;
         step = core_->Next()) {
      ++operations_;
      switch (step) {
        case ControlCall::Step::kNone:
          break;
        case ControlCall::Step::kRead:
          stream_.Read(&incoming_, &read_);
          break;
        case ControlCall::Step::kWrite:
          stream_.Write(ToBytes(core_->outgoing()), &written_);
          break;
        case ControlCall::Step::kFinish:
          is_finishing_ = true;
          stream_.Finish(grpc::Status::OK, &finished_);
          break;
      }
    }
  }

  ClusterService* const service_;
  PeerId id_ = kOwnShard;  // of none, until it begins
  Role role_ = Role::kWorker;
  Connections::HasRead has_read_;  // null if nobody looks
  std::optional<ControlCall> core_;
  grpc::ServerContext context_;
  grpc::ServerAsyncReaderWriter<grpc::ByteBuffer, grpc::ByteBuffer> stream_{&context_};
  grpc::ByteBuffer incoming_;
  UnaryCalls::Tag came_, greeted_, read_, written_, finished_;
  int operations_ = 1;  // under way
  bool is_greeted_ = false;
  bool is_finishing_ = false;
};

void ClusterService::Register(Beside beside, grpc::ServerBuilder* builder) {
  builder->RegisterService(this);
  const bool is_alone = beside == Beside::kNothing;
  queue_ = builder->AddCompletionQueue(/*is_frequently_polled=*/is_alone);
  if (const Gate* gate = credentials_.gate(); is_alone && gate != nullptr) {
    hellos_ = std::make_unique<HelloService>(gate);
    builder->RegisterService(hellos_.get());
  }
}

void ClusterService::Start() {
  grpc::ServerCompletionQueue* const queue = queue_.get();
  if (hellos_ != nullptr) hellos_->Start(queue);
  heartbeats_.Start(this, &ClusterService::RequestHeartbeat, queue,
                    [this](UnaryCalls::Call* call) { OnHeartbeat(call); });
  command_calls_.Start(this, &ClusterService::RequestCommand, queue,
                       [this](UnaryCalls::Call* call) { OnCommand(call); });
  AwaitJoin();
  thread_ = std::thread([this] {
    pthread_setname_np(pthread_self(), "coordinator");
    Run();
  });
}

void ClusterService::Run() {
  void* tag;
  bool ok;
  while (queue_->Next(&tag, &ok)) (*static_cast<UnaryCalls::Tag*>(tag))(ok);
}

void ClusterService::Stop() {
  if (queue_ == nullptr) return;
  if (thread_.joinable()) {
    // A queue that is shut down takes no new operation, so the calls must have ended before.
    {
      MonotonicLock lock(&mutex_);
      const auto none = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return open_joins_ == 0; };
      mutex_.Await(absl::Condition(&none));
    }
    heartbeats_.AwaitNone();
    command_calls_.AwaitNone();
    if (hellos_ != nullptr) hellos_->AwaitNone();
    queue_->Shutdown();
    thread_.join();
  } else {
    queue_->Shutdown();
    Run();
  }
  queue_ = nullptr;
}

void ClusterService::AwaitJoin() {
  {
    MonotonicLock lock(&mutex_);
    ++open_joins_;
  }
  new Call(this);
}

absl::StatusOr<Role> ClusterService::Admit(const grpc::ServerContext& context,
                                           absl::string_view method,
                                           Connections::HasRead* has_read) {
  absl::StatusOr<Role> role = credentials_.CheckCaller(context, method);
  if (role.ok() && connections_ != nullptr) {
    Connections::HasRead known = connections_->OnKnown(context.peer());
    if (has_read != nullptr) *has_read = std::move(known);
  }
  return role;
}

void ClusterService::Refuse(const grpc::ServerContext& context, const absl::Status& why) {
  refusals_->Add(context.peer(), why, MonotonicNow());
}

void ClusterService::OnJoin(Call* call) {
  AwaitJoin();
  Connections::HasRead has_read;
  absl::StatusOr<Role> role = Admit(call->context(), kJoinMethod, &has_read);
  if (role.ok() && *role != Role::kWorker && *role != Role::kServer) {
    role = NotFor(*role, "it takes no part in the job");
  }
  if (!role.ok()) {
    Refuse(call->context(), role.status());
    MonotonicLock lock(&mutex_);
    call->Refuse(role.status());
    return;
  }
  MonotonicLock lock(&mutex_);
  const PeerId id = ++last_peer_;
  call->Begin(id, *role, std::move(has_read));
  calls_[id] = call;
  const auto silent = std::count_if(calls_.begin(), calls_.end(),
                                    [](const auto& other) { return !other.second->has_spoken(); });
  if (silent > kMaxSilent) {
    call->Send(Refusal("too many processes have called and said nothing; try again later"));
  }
}

void ClusterService::OnHeartbeat(UnaryCalls::Call* call) {
  const auto reply = [&]() -> absl::StatusOr<grpc::ByteBuffer> {
    RUBATO_ASSIGN_OR_RETURN(const Role role, Admit(call->context(), kHeartbeatMethod));
    proto::HeartbeatRequest beat;
    if (!FromBytes(call->request(), &beat)) return NoMessage();
    if (role != Role::kServer && (role != Role::kWorker || beat.has_shard())) {
      return NotFor(role, "it speaks for no such process");
    }
    MonotonicLock lock(&mutex_);
    Handle(coordinator::Heartbeat{beat}).IgnoreError();
    return ToBytes(proto::HeartbeatReply());
  }();
  if (!reply.ok()) Refuse(call->context(), reply.status());
  call->Answer(reply);
}

void ClusterService::OnCommand(UnaryCalls::Call* call) {
  const absl::StatusOr<Role> role = Admit(call->context(), kCommandMethod);
  proto::CommandRequest command;
  if (!role.ok() || !FromBytes(call->request(), &command)) {
    const absl::Status status = role.ok() ? NoMessage() : role.status();
    Refuse(call->context(), status);
    call->Answer(status);
    return;
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
      [call](const absl::StatusOr<proto::CommandReply>& answer) {
        if (answer.ok()) {
          call->Answer(ToBytes(*answer));
        } else {
          call->Answer(answer.status());
        }
      });
}

void ClusterService::TickCalls() {
  for (const auto& [id, call] : calls_) {
    if (call->KeepsSilent(MonotonicNow())) {
      call->Send(Refusal("this process has called and not registered"));
    }
    call->OnTick();
  }
}

void ClusterService::Do(const coordinator::Send& send) {
  if (send.peer == kOwnShard) {
    outlets_.to_own_shard(send.message);
    return;
  }
  const auto call = calls_.find(send.peer);
  if (call != calls_.end()) call->second->Send(send.message);
}

}  // namespace rubato
