#include "common/wire/unary_calls.h"

#include "common/wire/channel.h"

namespace rubato {

void UnaryCalls::Call::Answer(const absl::StatusOr<grpc::ByteBuffer>& reply) {
  responder_.Finish(reply.value_or(grpc::ByteBuffer()), ToGrpc(reply.status()), &answered_);
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
  request_(call);
}

void UnaryCalls::End(Call* call) {
  delete call;  // with the tag that runs
  absl::MutexLock lock(&mutex_);
  --calls_;
}

void UnaryCalls::AwaitNone() {
  absl::MutexLock lock(&mutex_);
  const auto none = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return calls_ == 0; };
  mutex_.Await(absl::Condition(&none));
}

}  // namespace rubato
