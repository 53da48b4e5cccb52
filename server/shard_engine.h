// The shell of the shard's core: holds the payloads and the block store, and runs the actions that
// the core decides. Belongs to one thread (the completion queue's).
#ifndef RUBATO_SERVER_SHARD_ENGINE_H_
#define RUBATO_SERVER_SHARD_ENGINE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "common/learning_rate.h"
#include "common/wire/frame.h"
#include "common/wire/payload.h"
#include "proto/cluster.pb.h"
#include "proto/job.pb.h"
#include "proto/view.pb.h"
#include "server/block_store.h"
#include "server/optimizer.h"
#include "server/parameter_groups.h"
#include "server/shard.h"

namespace rubato {

class ShardEngine {
 public:
  // Sends one block of parameters on a stream.
  using Sender = std::function<void(uint64_t stream, const Frame& frame, const Payload& payload)>;

  // Shard number `shard` of `job`. InvalidArgument if the job's optimizer cannot be made.
  static absl::StatusOr<std::unique_ptr<ShardEngine>> Create(const proto::Job& job, int shard,
                                                             Sender send);

  // Takes its blocks at the first view; every view holds from here on. ResourceExhausted if memory
  // does not hold them.
  absl::Status Open(const proto::View& view);

  // A frame has arrived on `stream`. An error is the sender's fault: its stream ends with it.
  absl::Status OnFrame(uint64_t stream, const Frame& frame, Payload payload);
  void OnStreamGone(uint64_t stream);

  // What the ledger has counted so far.
  proto::ShardReport Report() const;

 private:
  // A gradient sum: as received, or in a buffer of ours that may be written.
  struct Held {
    Payload payload;
    std::shared_ptr<FloatBuffer> buffer;  // null: as received
  };

  ShardEngine(const proto::Job& job, int shard, Optimizer optimizer, Sender send);
  absl::Status OnPush(const Frame& frame, Payload payload);
  void Run(ShardActions actions);
  void Sum(const ShardAction& action);
  void Apply(const ShardAction& action);
  void SendBlock(const ShardAction& action);

  const proto::Job job_;
  const int shard_;
  const Optimizer optimizer_;
  const Sender send_;

  // From the first view on.
  std::optional<LearningRate> learning_rate_;
  std::optional<ParameterGroups> groups_;
  std::optional<BlockStore> store_;
  std::optional<Shard> core_;
  uint32_t view_ = 0;

  absl::flat_hash_map<PayloadId, Held> held_;
  PayloadId last_payload_ = 0;
};

}  // namespace rubato

#endif  // RUBATO_SERVER_SHARD_ENGINE_H_
