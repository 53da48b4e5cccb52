// A process's call to the coordinator: registers it and brings messages both ways. Used by workers
// and by the shards other than 0.
#ifndef RUBATO_COMMON_WIRE_CONTROL_CLIENT_H_
#define RUBATO_COMMON_WIRE_CONTROL_CLIENT_H_

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/monotonic.h"
#include "common/wire/connection_options.h"
#include "proto/cluster.grpc.pb.h"

namespace rubato {

// What to do with the coordinator's messages. Called on the client's own thread, from Start on.
struct ControlCallbacks {
  std::function<void(proto::CoordinatorMessage message)> on_message;
  // The call has broken without a Stop, once. The status names the coordinator's address.
  std::function<void(absl::Status status)> on_failure;
};

class ControlClient {
 public:
  // Connects to the coordinator at `address`, trying again until `timeout` has passed (the
  // processes of a job may start in any order), and registers, from Start on. DeadlineExceeded,
  // saying where and how long, if nobody answers; FailedPrecondition if the two do not hold the
  // same key; Cancelled if `cancelled` becomes true meanwhile. `waits` is told once, when nobody
  // has answered within 10 s or half of `timeout`, where it tries and why it does not succeed.
  static absl::StatusOr<std::unique_ptr<ControlClient>> Connect(
      const std::string& address, absl::Duration timeout, const proto::Registration& registration,
      std::function<bool()> cancelled, const ConnectionOptions& connection,
      const std::function<void(const std::string&)>& waits = nullptr);

  // Begins to receive. Once.
  void Start(ControlCallbacks callbacks);

  // Ends the call.
  ~ControlClient();

  // Any thread. Lost if the call is broken: on_failure tells. What nobody waits for (progress, that
  // a snapshot is copied) is held back for up to kHeldFor, to go as one message with what else
  // there is, in order, or with the next that is waited for, and says for how long it was held
  // back; it returns at once, unless more than 64 KiB are held back.
  void Send(proto::PeerMessage message) ABSL_LOCKS_EXCLUDED(write_mutex_, mutex_);
  static constexpr absl::Duration kHeldFor = absl::Milliseconds(20);

 private:
  // `shown`: what the call shows of who calls.
  ControlClient(std::string name, std::shared_ptr<grpc::Channel> channel,
                const std::optional<std::string>& shown, const proto::Registration& registration);
  void Run();
  void SendHeld() ABSL_LOCKS_EXCLUDED(write_mutex_, mutex_);
  // Whether no more may be held back.
  bool HoldBack(proto::PeerMessage message) ABSL_LOCKS_EXCLUDED(mutex_);
  // Writes what has been held back, and `last` unless it is null, as one message.
  void WriteHeldAnd(const proto::PeerMessage* last) ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void Write(const proto::PeerMessage& message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);

  struct Held {
    proto::PeerMessage message;
    absl::Time since;
  };

  const std::string name_;  // of the coordinator, with its address
  const std::unique_ptr<proto::Coordination::Stub> stub_;
  ControlCallbacks callbacks_;
  grpc::ClientContext context_;
  absl::Mutex write_mutex_;
  // Messages held back until the coordinator has authenticated this process: before that it accepts
  // only a few KB (connections.h), and a registration contains a model's layout.
  std::vector<proto::PeerMessage> early_ ABSL_GUARDED_BY(write_mutex_);
  bool is_known_ ABSL_GUARDED_BY(write_mutex_) = false;
  std::unique_ptr<grpc::ClientReaderWriter<proto::PeerMessage, proto::CoordinatorMessage>> call_;
  MonotonicMutex mutex_;
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;  // no message comes any more
  std::vector<Held> held_ ABSL_GUARDED_BY(mutex_);
  size_t held_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  bool sends_held_ ABSL_GUARDED_BY(mutex_) = false;  // its thread is at it
  std::thread sender_;                               // of what is held back
  std::thread thread_;
};

// "host pid 123", for messages to people.
std::string ProcessDescription();

}  // namespace rubato

#endif  // RUBATO_COMMON_WIRE_CONTROL_CLIENT_H_
