// The real shard, floats and optimizer and all, behind a simulated shard's streams.
#ifndef RUBATO_TOOLS_SIMULATOR_ENGINE_SHARD_H_
#define RUBATO_TOOLS_SIMULATOR_ENGINE_SHARD_H_

#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "common/base/status.h"
#include "server/shard/shard_engine.h"
#include "tools/simulator/shard_model.h"

namespace rubato {

class EngineShard : public ShardModel {
 public:
  // Errors as ShardEngine::Create.
  static absl::StatusOr<std::unique_ptr<EngineShard>> Create(const proto::Job& job, int shard,
                                                             Sender send, Reporter report) {
    RUBATO_ASSIGN_OR_RETURN(
        std::unique_ptr<ShardEngine> engine,
        ShardEngine::Create(
            job, shard,
            [send = std::move(send)](uint64_t stream, const Frame& frame, const Payload& payload) {
              send(stream, frame, {0, payload});
            },
            std::move(report)));
    return std::unique_ptr<EngineShard>(new EngineShard(std::move(engine)));
  }

  void OnMessage(const proto::CoordinatorMessage& message) override { engine_->OnMessage(message); }
  absl::Status OnFrame(uint64_t stream, const Frame& frame, Content content) override {
    return engine_->OnFrame(stream, frame, content.floats);
  }
  void OnStreamGone(uint64_t stream) override { engine_->OnStreamGone(stream); }

 private:
  explicit EngineShard(std::unique_ptr<ShardEngine> engine) : engine_(std::move(engine)) {}

  std::unique_ptr<ShardEngine> engine_;
};

}  // namespace rubato

#endif  // RUBATO_TOOLS_SIMULATOR_ENGINE_SHARD_H_
