// The simulated process of one shard: carries frames and messages between the network and what the
// shard is (shard_model.h).
#ifndef RUBATO_TOOLS_SIMULATOR_SHARD_PROCESS_H_
#define RUBATO_TOOLS_SIMULATOR_SHARD_PROCESS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "tools/simulator/blocks.h"
#include "tools/simulator/network.h"
#include "tools/simulator/shard_model.h"

namespace rubato {

// What all shards of a simulation share; outlives them.
struct ShardSetting {
  const Blocks* blocks = nullptr;
  VirtualNetwork* network = nullptr;
  // That a shard sums and applies; infinite: at once.
  double change_bytes_per_second = 0;
  std::string job_digest;
  std::string version;
  ProcessId coordinator = 0;
  std::function<void(const absl::Status&)> on_failure;
};

class ShardProcess : public Process {
 public:
  // Makes the shard, given how it sends, reports and defers.
  using MakeModel = std::function<absl::StatusOr<std::unique_ptr<ShardModel>>(
      ShardModel::Sender send, ShardModel::Reporter report, std::function<bool(int64_t)> defer)>;

  // Errors as `make`'s.
  static absl::StatusOr<std::unique_ptr<ShardProcess>> Create(const ShardSetting* setting,
                                                              int shard, const MakeModel& make);

  // Calls the coordinator. `self` is this process.
  void Start(ProcessId self);

  void OnMessage(ConnectionId connection, SimMessage&& message) override;
  void OnBroken(ConnectionId connection) override;
  void OnTimer(uint64_t block) override { model_->OnDeferred(static_cast<int64_t>(block)); }

  // Pulls for the simulation itself, past the network: `take` gets what is there now.
  using Take = std::function<void(const Frame& frame, const Content& content)>;
  absl::Status Read(const Frame& pull, const Take& take);

  // From the simulation itself, past the network.
  absl::Status Restore(const Frame& frame, Content content);

  ConnectionId control() const { return control_; }
  ShardModel* model() { return model_.get(); }

 private:
  ShardProcess(const ShardSetting* setting, int shard) : setting_(*setting), shard_(shard) {}

  void Send(ConnectionId stream, const Frame& frame, Content content);
  void Tell(proto::PeerMessage message);
  bool Defer(int64_t block);

  const ShardSetting& setting_;
  const int shard_;
  std::unique_ptr<ShardModel> model_;
  ProcessId self_ = 0;
  ConnectionId control_ = 0;
  SimTime busy_until_ = 0;
  const Take* take_ = nullptr;  // while Read runs
};

}  // namespace rubato

#endif  // RUBATO_TOOLS_SIMULATOR_SHARD_PROCESS_H_
