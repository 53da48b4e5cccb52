// Renews a worker's lease at the coordinator, from a thread and over a channel of its own, so that
// neither computing nor a full connection makes a worker look dead.
#ifndef RUBATO_COMMON_WIRE_HEARTBEAT_H_
#define RUBATO_COMMON_WIRE_HEARTBEAT_H_

#include <cstdint>
#include <memory>
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
  // Beats every `interval` until it is destroyed. A beat that is not answered within that time is
  // given up; the next one follows.
  Heartbeat(const std::string& address, int rank, uint32_t incarnation, absl::Duration interval,
            const ConnectionOptions& connection);
  ~Heartbeat();

 private:
  void Run();

  const absl::Duration interval_;
  const std::unique_ptr<proto::Coordination::Stub> stub_;
  proto::HeartbeatRequest request_;
  MonotonicMutex mutex_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace rubato

#endif  // RUBATO_COMMON_WIRE_HEARTBEAT_H_
