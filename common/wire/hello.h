// The first call on a connection, by which both ends show that they hold the job's key
// (authentication.h): the service that answers it, and the call itself.
#ifndef RUBATO_COMMON_WIRE_HELLO_H_
#define RUBATO_COMMON_WIRE_HELLO_H_

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/wire/authentication.h"
#include "common/wire/unary_calls.h"
#include "proto/authentication.grpc.pb.h"

namespace rubato {

// Answers callers whom nobody knows yet, and keeps nothing.
class HelloService
    : public proto::Authentication::WithRawMethod_Hello<proto::Authentication::Service> {
 public:
  // `gate` must outlive it.
  explicit HelloService(const Gate* gate) : gate_(*gate) {}

  // From now on answers, as Gate::Welcome, on the thread of `queue`, which is of its server's.
  // Reads nothing longer than kMaxHelloBytes.
  void Start(grpc::ServerCompletionQueue* queue);

  // Before the queue is shut down.
  void AwaitNone() { calls_.AwaitNone(); }

 private:
  const Gate& gate_;
  UnaryCalls calls_;
};

// Handles the result of a hello that was sent for `caller`. Unauthenticated if the server does not
// hold the key or does not use keys; Unavailable if it has ended meanwhile; otherwise gRPC's
// status.
absl::Status OnHelloAnswered(const grpc::Status& status, const proto::HelloReply& reply,
                             Caller* caller);

// Says hello and waits for the answer: for `timeout` at most, and until `cancelled`, which may be
// null. DeadlineExceeded, Cancelled, or as OnHelloAnswered.
absl::Status SayHello(const std::shared_ptr<grpc::Channel>& channel, absl::Duration timeout,
                      const std::function<bool()>& cancelled, Caller* caller);

// Why `channel`, which tries to connect, has not yet: Unauthenticated if the two ends do not take
// each other's certificates; else Unavailable, with a message if somebody listens.
absl::Status WhyNotConnected(const std::shared_ptr<grpc::Channel>& channel);

}  // namespace rubato

#endif  // RUBATO_COMMON_WIRE_HELLO_H_
