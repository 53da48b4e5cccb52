#include "common/wire/heartbeat.h"

#include <utility>

#include "absl/time/time.h"
#include "common/base/lease.h"
#include "common/wire/channel.h"
#include "common/wire/control_methods.h"
#include "common/wire/hello.h"

namespace rubato {

Heartbeat::Heartbeat(const std::string& address, proto::HeartbeatRequest who,
                     std::function<absl::Duration()> busy, const ConnectionOptions& connection)
    : interval_(HeartbeatInterval(connection.lease)),
      channel_(MakeChannel(address, connection)),
      stub_(proto::Coordination::NewStub(channel_)),
      caller_(connection.credentials.NewCaller()),
      request_(std::move(who)),
      busy_(std::move(busy)),
      refusals_(connection.refusals) {
  thread_ = std::thread([this] { Run(); });
}

Heartbeat::~Heartbeat() {
  {
    MonotonicLock lock(&mutex_);
    stopped_ = true;
    if (beat_ != nullptr) beat_->TryCancel();
  }
  thread_.join();
}

absl::Time Heartbeat::heard_at() const {
  MonotonicLock lock(&mutex_);
  return heard_at_;
}

bool Heartbeat::stops() const {
  MonotonicLock lock(&mutex_);
  return stopped_;
}

grpc::Status Heartbeat::Beat(grpc::ClientContext* context) {
  if (caller_.has_value()) context->AddMetadata(kCallerKey, caller_->Show(kHeartbeatMethod));
  request_.set_busy_seconds(absl::ToDoubleSeconds(busy_()));
  if (refusals_->count() > 0) request_.set_refused(refusals_->count());
  proto::HeartbeatReply reply;
  const grpc::Status status = stub_->Heartbeat(context, request_, &reply);
  // The server may be another by now.
  if (caller_.has_value() && status.error_code() == grpc::StatusCode::UNAUTHENTICATED) {
    caller_->Leave();
  }
  return status;
}

void Heartbeat::Run() {
  bool stopped = false;
  while (!stopped) {
    grpc::ClientContext context;
    {
      MonotonicLock lock(&mutex_);
      if (stopped_) return;
      beat_ = &context;
    }
    context.set_deadline(DeadlineIn(interval_));
    context.set_wait_for_ready(true);
    grpc::Status status;
    if (caller_.has_value() && !caller_->is_welcome(MonotonicNow())) {
      const absl::Status hello = SayHello(
          channel_, interval_, [this] { return stops(); }, &*caller_);
      status = ToGrpc(hello);
    }
    if (status.ok()) status = Beat(&context);
    // Whether it came shows at the other end. One that was given up took an interval already: who
    // was frozen meanwhile is not to be silent for another.
    const bool is_late = status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED;
    MonotonicLock lock(&mutex_);
    if (status.ok()) heard_at_ = MonotonicNow();
    beat_ = nullptr;
    stopped =
        mutex_.AwaitFor(absl::Condition(&stopped_), is_late ? absl::ZeroDuration() : interval_);
  }
}

}  // namespace rubato
