// A server's calls of one method that takes a message and answers with one, as bytes, on one of its
// completion queues, whose tags are functions. (A service of gRPC's callbacks would have a queue of
// its own, whose threads read half of the server's connections: data_service.h.)
#ifndef RUBATO_COMMON_WIRE_UNARY_CALLS_H_
#define RUBATO_COMMON_WIRE_UNARY_CALLS_H_

#include <grpcpp/grpcpp.h>
#include <grpcpp/support/async_unary_call.h>

#include <functional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"

namespace rubato {

class UnaryCalls {
 public:
  // What the queue's events carry.
  using Tag = std::function<void(bool ok)>;
  using Responder = grpc::ServerAsyncResponseWriter<grpc::ByteBuffer>;

  class Call {
   public:
    const grpc::ServerContext& context() const { return context_; }
    const grpc::ByteBuffer& request() const { return request_; }
    // Once, on any thread. There is no such call after that.
    void Answer(const absl::StatusOr<grpc::ByteBuffer>& reply);

   private:
    friend class UnaryCalls;
    grpc::ServerContext context_;
    grpc::ByteBuffer request_;
    Responder responder_{&context_};
    Tag came_, answered_;
  };

  // From now on hands each call to `on_call`, on the thread of `queue`, which answers it then or
  // later. `request` is the function of `service` that asks gRPC for the next call of the method.
  // The server has been built.
  template <typename Service, typename Base>
  void Start(Service* service,
             void (Base::*request)(grpc::ServerContext*, grpc::ByteBuffer*, Responder*,
                                   grpc::CompletionQueue*, grpc::ServerCompletionQueue*, void*),
             grpc::ServerCompletionQueue* queue, std::function<void(Call*)> on_call) {
    request_ = [service, request, queue](Call* call) {
      (service->*request)(&call->context_, &call->request_, &call->responder_, queue, queue,
                          &call->came_);
    };
    on_call_ = std::move(on_call);
    AwaitCall();
  }

  // Waits until there is no call any more. The server has been shut down, and the queue has not.
  void AwaitNone() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void AwaitCall() ABSL_LOCKS_EXCLUDED(mutex_);
  void End(Call* call) ABSL_LOCKS_EXCLUDED(mutex_);

  std::function<void(Call*)> request_, on_call_;
  absl::Mutex mutex_;
  int calls_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace rubato

#endif  // RUBATO_COMMON_WIRE_UNARY_CALLS_H_
