// What a simulated shard is, behind its streams: the real core with floats (engine_shard.h), or
// with symbols (symbolic_shard.h).
#ifndef RUBATO_TOOLS_SIMULATOR_SHARD_MODEL_H_
#define RUBATO_TOOLS_SIMULATOR_SHARD_MODEL_H_

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "common/wire/frame.h"
#include "proto/cluster.pb.h"
#include "tools/simulator/message.h"

namespace rubato {

class ShardModel {
 public:
  // Sends a block on a stream.
  using Sender = std::function<void(uint64_t stream, const Frame& frame, Content content)>;
  // Says something to the coordinator.
  using Reporter = std::function<void(const proto::PeerMessage& message)>;

  virtual ~ShardModel() = default;
  virtual void OnMessage(const proto::CoordinatorMessage& message) = 0;
  // An error is the sender's fault.
  virtual absl::Status OnFrame(uint64_t stream, const Frame& frame, Content content) = 0;
  virtual void OnStreamGone(uint64_t stream) = 0;
  // A change that was deferred is done (see SymbolicShard).
  virtual void OnDeferred(int64_t /*block*/) {}
};

}  // namespace rubato

#endif  // RUBATO_TOOLS_SIMULATOR_SHARD_MODEL_H_
