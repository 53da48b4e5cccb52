#include "common/wire/unary_calls.h"

#include <utility>

#include "common/wire/channel.h"

namespace rubato {

void UnaryCalls::Call::Answer(const absl::StatusOr<grpc::ByteBuffer>& reply) {
  responder_.Finish(reply.value_or(grpc::ByteBuffer()), ToGrpc(reply.status()), &answered_);
}

void UnaryCalls::Start(Request request, std::function<void(Call*)> on_call) {
  request_ = std::move(request);
  on_call_ = std::move(on_call);
  AwaitCall();
}

void UnaryCalls::AwaitCall() {
  {
    absl::MutexLock lock(&mutex_);
    ++calls_;
  }
  auto* const call = new Call;
  call->came_ = [this, call](bool ok) {
    if (!ok) {  // the server is shutting down
      End(call);
      return;
    }
    AwaitCall();
    on_call_(call);
  };
  call->answered_ = [this, call](bool) { End(call); };
  request_(&call->context_, &call->request_, &call->responder_, &call->came_);
}

void UnaryCalls::End(Call* call) {
  UnaryCalls& calls = *this;  // the tag that runs goes with the call
  delete call;
  absl::MutexLock lock(&calls.mutex_);
  --calls.calls_;
}

void UnaryCalls::AwaitNone() {
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(
      +[](int* calls) { return *calls == 0; }, &calls_));
}

}  // namespace rubato
