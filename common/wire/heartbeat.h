// Renews the lease of a worker or shard at the coordinator. Uses its own thread and channel, so
// that neither a long computation nor a full connection makes the process look dead.
#ifndef RUBATO_COMMON_WIRE_HEARTBEAT_H_
#define RUBATO_COMMON_WIRE_HEARTBEAT_H_

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "common/base/monotonic.h"
#include "common/wire/connection_options.h"
#include "proto/cluster.grpc.pb.h"

namespace rubato {

class Heartbeat {
 public:
  // Sends `who` (a HeartbeatRequest without busy_seconds), how long it has been `busy` and the
  // number of refusals of `connection`, every HeartbeatInterval until it is destroyed. A heartbeat
  // that is not answered within that interval is given up; the next one follows.
  Heartbeat(const std::string& address, proto::HeartbeatRequest who,
            std::function<absl::Duration()> busy, const ConnectionOptions& connection);
  ~Heartbeat();

  // When the coordinator last answered; before that, when this object was created. After a freeze
  // of this process itself, the value is reliable again one round trip later.
  absl::Time heard_at() const;

 private:
  void Run();
  grpc::Status Beat(grpc::ClientContext* context);
  bool stops() const;

  const absl::Duration interval_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<proto::Coordination::Stub> stub_;
  std::optional<Caller> caller_;  // none: nobody is shown a key
  proto::HeartbeatRequest request_;
  const std::function<absl::Duration()> busy_;
  const std::shared_ptr<Refusals> refusals_;
  mutable MonotonicMutex mutex_;
  absl::Time heard_at_ ABSL_GUARDED_BY(mutex_) = MonotonicNow();
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::ClientContext* beat_ ABSL_GUARDED_BY(mutex_) = nullptr;  // under way
  std::thread thread_;
};

}  // namespace rubato

#endif  // RUBATO_COMMON_WIRE_HEARTBEAT_H_
