// The shell of the shard's core: holds the payloads and the block store, and runs the actions that
// the core decides. Belongs to one thread (the completion queue's).
#ifndef RUBATO_SERVER_SHARD_SHARD_ENGINE_H_
#define RUBATO_SERVER_SHARD_SHARD_ENGINE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "common/space/learning_rate.h"
#include "common/space/sum_of_squares.h"
#include "common/wire/frame.h"
#include "common/wire/payload.h"
#include "common/wire/received_values.h"
#include "common/wire/shared_arena.h"
#include "proto/cluster.pb.h"
#include "proto/job.pb.h"
#include "proto/view.pb.h"
#include "server/optimizers/optimizer.h"
#include "server/optimizers/parameter_groups.h"
#include "server/shard/block_store.h"
#include "server/shard/coded_blocks.h"
#include "server/shard/shard.h"
#include "server/shard/shard_observer.h"
#include "server/shard/update_threads.h"

namespace rubato {

class ShardEngine {
 public:
  // Sends one block of parameters on a stream.
  using Sender = std::function<void(uint64_t stream, const Frame& frame, const Payload& payload)>;

  // Says something to the coordinator.
  using Reporter = std::function<void(const proto::PeerMessage& message)>;

  // Shard number `shard` of `job`. `observer`, if there is one, must outlive it; parameters lie in
  // `arena`, if there is one. InvalidArgument if the job's optimizer cannot be made.
  static absl::StatusOr<std::unique_ptr<ShardEngine>> Create(
      const proto::Job& job, int shard, Sender send, Reporter report,
      ShardObserver* observer = nullptr, std::shared_ptr<SharedArena> arena = nullptr);

  // What the coordinator says; answers go to the reporter.
  void OnMessage(const proto::CoordinatorMessage& message);

  // A frame has arrived on `stream`, whose values are borrowed for the call. An error is the
  // sender's fault: its stream ends with it.
  absl::Status OnFrame(uint64_t stream, const Frame& frame, const ReceivedValues& values);
  void OnStreamGone(uint64_t stream);

 private:
  // A block as it was: the parameters by reference, since a version is never written again; the
  // slots copied.
  struct BlockCopy {
    proto::BlockState state;
    std::shared_ptr<const FloatBuffer> parameters;
    std::vector<std::shared_ptr<const FloatBuffer>> slots;
  };

  ShardEngine(const proto::Job& job, int shard, Optimizer optimizer, Sender send, Reporter report,
              ShardObserver* observer, std::shared_ptr<SharedArena> arena);

  absl::Status Handle(uint64_t stream, const Frame& frame, const ReceivedValues& values);
  // Takes its blocks at the first view; every view holds from here on. ResourceExhausted if memory
  // does not hold them.
  absl::Status Open(const proto::View& view);
  void Restore(const proto::Restore& restore);
  void MaybeReportRestored();

  absl::Status OnPush(const Frame& frame, const ReceivedValues& values);
  absl::Status OnRestoreFrame(const Frame& frame, const ReceivedValues& values);
  absl::Status OnPull(uint64_t stream, const Frame& frame);
  absl::Status SendSnapshot(uint64_t stream, const Frame& frame) const;
  Range BlockRange(int64_t block) const;  // its values of the flat vector
  absl::Status CheckBlock(const Frame& frame, const ReceivedValues& values) const;
  // Copies what has just arrived into a buffer, if nothing has been done with it yet.
  void KeepArrived();
  void Release(PayloadId id);
  void Run(ShardActions actions);
  void Sum(const shard_action::Sum& action);
  void Apply(const shard_action::Apply& action);
  void SendBlock(const shard_action::Send& action);
  void Measure(const shard_action::Measure& action);
  void ReportMeasured(int64_t step);
  void Copy(const shard_action::Copy& action);
  void ReportCopied(uint32_t snapshot);

  const proto::Job job_;
  const int shard_;
  const Optimizer optimizer_;
  const Sender send_;
  const Reporter report_;
  ShardObserver* const observer_;  // may be null
  const std::shared_ptr<SharedArena> arena_;

  // From the first view on.
  std::optional<LearningRate> learning_rate_;
  std::optional<ParameterGroups> groups_;
  std::optional<BlockStore> store_;
  CodedBlocks coded_;
  UpdateThreads threads_;
  std::optional<Shard> core_;

  // A gradient sum that has just arrived is borrowed, and most often used at once, where it lies.
  struct Arrived {
    PayloadId id = 0;  // 0: none
    int64_t block = 0;
    const ReceivedValues* values = nullptr;
  };
  Arrived arrived_;
  absl::flat_hash_map<PayloadId, std::shared_ptr<FloatBuffer>> held_;  // that wait for others
  PayloadId last_payload_ = 0;

  // By snapshot and block.
  std::map<uint32_t, std::map<int64_t, BlockCopy>> snapshots_;
  // Of a checkpoint that the job goes on from. The floats may come before the message that
  // announces them.
  int64_t restore_expected_ = -1;  // frames; below 0: not announced yet
  int64_t restore_received_ = 0;
  bool restored_ = false;
  // Of the step at hand, as far as it has come.
  proto::ShardMeasured measured_;
  std::optional<SumOfSquares> squares_;
  int64_t trainable_ = 0;     // values of the flat vector before averages of statistics
  int64_t pushed_bytes_ = 0;  // payloads of workers
  int64_t pulled_bytes_ = 0;  // to workers
};

}  // namespace rubato

#endif  // RUBATO_SERVER_SHARD_SHARD_ENGINE_H_
