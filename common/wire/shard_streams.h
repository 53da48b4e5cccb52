// The worker's ends of its data streams, one to each shard, driven by one completion-queue thread.
#ifndef RUBATO_COMMON_WIRE_SHARD_STREAMS_H_
#define RUBATO_COMMON_WIRE_SHARD_STREAMS_H_

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "common/frames/frame.h"
#include "common/frames/payload.h"
#include "common/frames/received_values.h"
#include "common/wire/connection_options.h"
#include "common/wire/grpc_types.h"
#include "common/wire/shared_arena.h"
#include "common/wire/stream_opening.h"

namespace rubato {

class ShardStreams {
 public:
  // Called on the completion-queue thread, or on threads of shared memory, one at a time for a
  // shard.
  struct Callbacks {
    std::function<void(int shard, const Frame& frame, const ReceivedValues& values)> on_frame;
    // Once a shard, when its stream has broken; not after the destructor has begun. The status
    // names the address.
    std::function<void(int shard, absl::Status status)> on_failure;
    // May be null. Once a shard of this host: its frames go through shared memory, or why not.
    std::function<void(int shard, const absl::Status& shared)> on_shared;
    // May be null. Memory is shared, but what the shard would lend has to be copied, and why.
    std::function<void(int shard, const absl::Status& why)> on_copied;
  };

  // Opens a stream to each of `addresses`, those of shards number `first_shard` and on; these
  // answer only what is of their scope. A shard that cannot be reached shows as a failure. With
  // `share_memory` frames go through memory that is shared with a shard where that is possible, and
  // then each shard has a thread of its own here, which calls the callbacks; payloads that lie in
  // `arena`, if there is one, are lent to shards. With `hands_over` what is sent there is copied by
  // these threads.
  ShardStreams(const std::vector<std::string>& addresses, const StreamScope& scope,
               const ConnectionOptions& connection, Callbacks callbacks, bool share_memory = false,
               std::shared_ptr<const SharedArena> arena = nullptr, int first_shard = 0,
               bool hands_over = false);
  // Breaks the streams and waits until no callback runs any more.
  ~ShardStreams();

  // Any thread. Frames to one shard arrive in the order of the calls, but for those that find
  // others waiting: see Outbox.
  void Send(int shard, const Frame& frame, const Payload& payload);

  // While a Batch exists, frames are held back until they fill a message: for an event that sends
  // several frames. Callbacks run within a Batch.
  class Batch {
   public:
    // `streams` may be null.
    explicit Batch(ShardStreams* streams);
    ~Batch();
    Batch(const Batch&) = delete;
    Batch& operator=(const Batch&) = delete;

   private:
    ShardStreams* const streams_;
  };

 private:
  class Stream;

  void Run();

  Callbacks callbacks_;
  const int first_shard_;
  const std::unique_ptr<grpc::CompletionQueue> queue_;
  std::vector<std::unique_ptr<Stream>> streams_;
  std::thread thread_;
};

}  // namespace rubato

#endif  // RUBATO_COMMON_WIRE_SHARD_STREAMS_H_
