// The server's ends of the data streams: raw messages on one completion queue, or frames in memory
// shared with a worker of this host, each of which has a thread. Frames are handled on the thread
// that received them, one at a time.
#ifndef RUBATO_COMMON_WIRE_DATA_SERVICE_H_
#define RUBATO_COMMON_WIRE_DATA_SERVICE_H_

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "common/base/log.h"
#include "common/base/rate_limit.h"
#include "common/frames/frame.h"
#include "common/frames/payload.h"
#include "common/frames/received_values.h"
#include "common/wire/channel.h"
#include "common/wire/connection_options.h"
#include "common/wire/hello.h"
#include "common/wire/refusals.h"
#include "common/wire/shared_arena.h"

namespace rubato {

class DataService {
 public:
  // Called one at a time. While one runs it may call Send.
  struct Callbacks {
    // The values are borrowed for the call. An error is the sender's fault: its stream ends.
    std::function<absl::Status(uint64_t stream, const Frame& frame, const ReceivedValues& values)>
        on_frame;
    // The last of a stream.
    std::function<void(uint64_t stream)> on_gone;
  };

  // Serves only workers and servers that the credentials of `connection` authenticate, with this
  // job digest and the current term. Accepts their offers of shared memory if `share_memory`;
  // payloads in `arena`, if it is not null, are lent to these peers. `log` must outlive it.
  // Accepted peers are reported to the connections of `connection`, if it has any, refused ones to
  // its refusals. Each stream has its own copy of the rate limit `limit`.
  DataService(std::string job_digest, bool share_memory, const Log* log,
              std::shared_ptr<const SharedArena> arena = nullptr,
              const ConnectionOptions& connection = ConnectionOptions(),
              const RateLimit& limit = RateLimit(kMaxMessagesAtOnce, kBetweenMessages));
  ~DataService();

  // Before the server is built, whose hellos it answers, too. Its queue's thread reads all of the
  // server's connections, if no other queue of the server listens and none of its services is one
  // of gRPC's callbacks, whose threads would read half of them: that would take a third of a
  // stream's speed.
  void Register(grpc::ServerBuilder* builder);
  // After it is built.
  void Start(Callbacks callbacks) ABSL_LOCKS_EXCLUDED(mutex_);

  // Streams opened from now on must be of this term; before, of none. Any thread.
  void SetTerm(uint32_t term) { term_ = term; }

  // Waits for the streams to end and the thread to stop. Call it when the server has been shut down
  // and before it is destroyed, since the queue's events refer to the server.
  void Stop();

  // Runs `task` on the queue's thread as if it were a callback, after those that were posted before
  // it; any thread may ask. Drops it after Stop.
  void Post(std::function<void()> task);

  // Any thread: releases `asked` when the queue's thread and those of all streams have each
  // completed a round.
  void Ask(std::shared_ptr<void> asked);

  // Of a callback, while it runs: sends on a stream once the callback has returned, or drops the
  // frame if the stream is gone.
  void Send(uint64_t stream, const Frame& frame, const Payload& payload);

 private:
  class Stream;
  struct TaskDue;
  using Tag = std::function<void(bool ok)>;

  void Accept() ABSL_LOCKS_EXCLUDED(mutex_);
  void Run() ABSL_LOCKS_EXCLUDED(mutex_);
  // What callbacks have sent goes, that of one event together.
  void ReleaseHeld() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Remove(uint64_t stream) ABSL_LOCKS_EXCLUDED(mutex_);
  void NotifyIfEmpty() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string job_digest_;
  std::atomic<uint32_t> term_{0};
  const bool share_memory_;
  const Log* const log_;
  const std::shared_ptr<const SharedArena> arena_;
  const Credentials credentials_;
  const std::shared_ptr<Connections> connections_;
  const std::shared_ptr<Refusals> refusals_;
  const RateLimit limit_;
  grpc::AsyncGenericService service_;
  std::unique_ptr<HelloService> hellos_;  // null if nobody is asked for a key
  std::unique_ptr<grpc::ServerCompletionQueue> queue_;
  Callbacks callbacks_;
  bool stopped_ = false;
  std::thread thread_;
  std::unique_ptr<Stream> removed_;  // whose last operation is being handled, on the queue's thread
  absl::Mutex post_mutex_;           // held while a task is posted
  bool closed_ ABSL_GUARDED_BY(post_mutex_) = false;  // the queue takes no more
  std::deque<std::function<void()>> posted_ ABSL_GUARDED_BY(post_mutex_);

  absl::Mutex mutex_;  // held while a callback runs; before those of streams and post_mutex_
  absl::flat_hash_map<uint64_t, std::unique_ptr<Stream>> streams_ ABSL_GUARDED_BY(mutex_);
  std::vector<uint64_t> held_ ABSL_GUARDED_BY(mutex_);
  uint64_t last_stream_ ABSL_GUARDED_BY(mutex_) = 0;
  // Closing: told when the last stream is gone.
  absl::Notification* when_empty_ ABSL_GUARDED_BY(mutex_) = nullptr;
};

}  // namespace rubato

#endif  // RUBATO_COMMON_WIRE_DATA_SERVICE_H_
