// The simulated process of one shard: carries frames and messages between the network and the
// shard's protocol.
#ifndef RUBATO_TOOLS_SIMULATOR_SHARD_PROCESS_H_
#define RUBATO_TOOLS_SIMULATOR_SHARD_PROCESS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/consistency/policy.h"
#include "server/shard/shard_protocol.h"
#include "tools/simulator/blocks.h"
#include "tools/simulator/network.h"
#include "tools/simulator/virtual_streams.h"

namespace rubato {

// What all shards of a simulation share; outlives them.
struct ShardSetting {
  const Blocks* blocks = nullptr;
  PolicyFactory policies;
  VirtualNetwork* network = nullptr;
  bool has_symbols = false;  // in the place of floats
  // That a shard sums and applies; infinite: at once.
  double change_bytes_per_second = 0;
  std::string job_digest;
  std::string version;
  ProcessId coordinator = 0;
  std::optional<StreamLimits> streams;
  StreamJudge* judge = nullptr;  // may be null
  std::function<void(const absl::Status&)> on_failure;
};

class ShardProcess : public Process, private VirtualStreams::Owner {
 public:
  // Makes the values, given how changes are deferred; null: they take no time.
  using MakeValues = std::function<absl::StatusOr<std::unique_ptr<ShardValues>>(
      std::function<bool(int64_t block)> defer)>;

  // Errors as `make`'s.
  static absl::StatusOr<std::unique_ptr<ShardProcess>> Create(const ShardSetting* setting,
                                                              int shard, const MakeValues& make);

  // Calls the coordinator. `self` is this process.
  void Start(ProcessId self);

  void OnMessage(ConnectionId connection, SimMessage&& message) override;
  void OnBroken(ConnectionId connection) override;
  void OnTimer(uint64_t block) override;
  void OnSent(ConnectionId connection) override { ends_.OnSent(connection); }
  void OnAcknowledged(ConnectionId connection) override { ends_.OnAcknowledged(connection); }

  // Pulls for the simulation itself, past the network: `take` gets what is there now.
  using Take = std::function<void(const Frame& frame, const Content& content)>;
  absl::Status Read(const Frame& pull, const Take& take);

  // From the simulation itself, past the network.
  absl::Status Restore(const Frame& frame, const Content& content);

  // What it stands at, for people.
  std::string State() const;
  // Its engine is stuck: says so to the coordinator, and is about to die.
  void SayStuck();

  // What it has ended with; none while it runs.
  const std::optional<absl::Status>& end() const { return end_; }
  ConnectionId control() const { return control_; }
  // Null before the first view.
  const Shard* core() const { return protocol_->core(); }

 private:
  ShardProcess(const ShardSetting* setting, int shard)
      : setting_(*setting),
        shard_(shard),
        ends_(setting->network, StreamCore::Side::kServer, setting->streams, setting->judge, this) {
  }

  void OnFrame(ConnectionId stream, SimMessage&& message) override;
  void OnGone(ConnectionId stream) override;
  // One overload for each outcome.
  void Do(const shard_outcome::Sent& sent);
  void Do(const shard_outcome::Said& said);
  void Do(const shard_outcome::Updated&) {}
  void Do(const shard_outcome::Refused&) {}
  bool Defer(int64_t block);

  const ShardSetting& setting_;
  const int shard_;
  VirtualStreams ends_;
  std::optional<ShardProtocol> protocol_;
  ProcessId self_ = 0;
  ConnectionId control_ = 0;
  SimTime busy_until_ = 0;
  std::optional<absl::Status> end_;
  const Take* take_ = nullptr;  // while Read runs
};

}  // namespace rubato

#endif  // RUBATO_TOOLS_SIMULATOR_SHARD_PROCESS_H_
