#include "common/wire/hello.h"

#include <string>
#include <utility>

#include "absl/time/time.h"
#include "common/base/monotonic.h"
#include "common/base/status.h"
#include "common/wire/channel.h"
#include "common/wire/raw_message.h"

namespace rubato {

namespace {

// What `gate` answers to the bytes of a hello.
absl::StatusOr<grpc::ByteBuffer> AnswerHello(const Gate& gate, const grpc::ByteBuffer& request) {
  proto::HelloRequest hello;
  if (request.Length() > kMaxHelloBytes || !FromBytes(request, &hello)) {
    return absl::InvalidArgumentError("this is no hello");
  }
  proto::HelloReply answer;
  RUBATO_ASSIGN_OR_RETURN(*answer.mutable_welcome(), gate.Welcome(hello.hello(), MonotonicNow()));
  return ToBytes(answer);
}

}  // namespace

void HelloService::Start(grpc::ServerCompletionQueue* queue) {
  calls_.Start(this, &HelloService::RequestHello, queue, [this](UnaryCalls::Call* call) {
    call->Answer(AnswerHello(gate_, call->request()));
  });
}

absl::Status OnHelloAnswered(const grpc::Status& status, const proto::HelloReply& reply,
                             Caller* caller) {
  if (status.ok()) return caller->OnWelcome(reply.welcome(), MonotonicNow());
  if (status.error_code() == grpc::StatusCode::UNIMPLEMENTED) {
    return absl::UnauthenticatedError(
        "the server asks for no key, and this process has one: give it the job's key, too, or "
        "unset RUBATO_KEY and RUBATO_KEY_FILE here");
  }
  // It has shut down, or its host has: another may take its place.
  if (status.error_code() == grpc::StatusCode::CANCELLED) {
    return absl::UnavailableError("the server has ended");
  }
  return FromGrpc(status);
}

absl::Status SayHello(const std::shared_ptr<grpc::Channel>& channel, absl::Duration timeout,
                      const std::function<bool()>& cancelled, Caller* caller) {
  constexpr absl::Duration kLook = absl::Milliseconds(100);
  const std::unique_ptr<proto::Authentication::Stub> stub = proto::Authentication::NewStub(channel);
  grpc::ClientContext context;
  context.set_deadline(DeadlineIn(timeout));
  proto::HelloRequest request;
  request.set_hello(caller->Hello());
  grpc::CompletionQueue queue;
  const auto call = stub->AsyncHello(&context, request, &queue);
  proto::HelloReply reply;
  grpc::Status status;
  call->Finish(&reply, &status, nullptr);
  void* tag;
  bool ok;
  const auto ends = [&](absl::Duration within) {
    return queue.AsyncNext(&tag, &ok, DeadlineIn(within)) != grpc::CompletionQueue::TIMEOUT;
  };
  while (!ends(kLook)) {
    if (cancelled && cancelled()) context.TryCancel();
  }
  queue.Shutdown();
  while (queue.Next(&tag, &ok)) {
  }
  if (cancelled && cancelled()) return absl::CancelledError("interrupted");
  return OnHelloAnswered(status, reply, caller);
}

absl::Status WhyNotConnected(const std::shared_ptr<grpc::Channel>& channel) {
  const absl::Status nobody = absl::UnavailableError("");
  if (channel->GetState(false) != GRPC_CHANNEL_TRANSIENT_FAILURE) return nobody;
  // A call that does not wait ends with what kept the channel from connecting last.
  grpc::ClientContext context;
  context.set_deadline(DeadlineIn(absl::Milliseconds(100)));
  proto::HelloReply reply;
  const absl::Status status = FromGrpc(
      proto::Authentication::NewStub(channel)->Hello(&context, proto::HelloRequest(), &reply));
  const bool is_told = absl::IsUnavailable(status) && !IsFromConnecting(status.message());
  return absl::IsUnauthenticated(status) || is_told ? status : nobody;
}

}  // namespace rubato
