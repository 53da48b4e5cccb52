// The values of a shard as floats: payloads, parameters and the optimizer, which makes updates on
// one thread or several. Belongs to the thread of its protocol.
#ifndef RUBATO_SERVER_SHARD_FLOAT_VALUES_H_
#define RUBATO_SERVER_SHARD_FLOAT_VALUES_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/space/learning_rate.h"
#include "common/space/placement.h"
#include "common/wire/shared_arena.h"
#include "proto/job.pb.h"
#include "proto/layout.pb.h"
#include "server/optimizers/optimizer.h"
#include "server/optimizers/parameter_groups.h"
#include "server/shard/block_store.h"
#include "server/shard/coded_blocks.h"
#include "server/shard/shard_values.h"
#include "server/shard/update_threads.h"

namespace rubato {

class FloatValues : public ShardValues {
 public:
  // Of shard number `shard` of `job`, in `memory`. InvalidArgument if the job's optimizer cannot be
  // made.
  static absl::StatusOr<std::unique_ptr<FloatValues>> Create(
      const proto::Job& job, int shard, const BlockMemory& memory = BlockMemory(nullptr));

  absl::StatusOr<Range> Open(const proto::View& view) override;
  absl::StatusOr<Range> GoOn(const proto::View& view) override;
  size_t BlockSize(int64_t block) const override { return store_->BlockSize(block); }
  size_t slots() const override { return optimizer_.slots().size(); }

  PayloadId Arrive(const Frame& frame, const ReceivedValues& values) override;
  void EndArrival() override;
  void Release(PayloadId payload) override;

  void Sum(const shard_action::Sum& sum) override;
  Block Apply(const shard_action::Apply& apply) override;
  void Skip(const shard_action::Skip& skip) override;
  std::optional<int64_t> Measure(const shard_action::Measure& measure,
                                 SumOfSquares* squares) override;

  Payload Read(const shard_action::Send& send, Frame* frame) override;
  std::vector<Payload> Copy(int64_t block) override;
  void Restore(int64_t block, uint32_t slot, const ReceivedValues& values) override;

 private:
  FloatValues(const proto::Job& job, int shard, Optimizer optimizer, const BlockMemory& memory)
      : job_(job),
        shard_(shard),
        optimizer_(std::move(optimizer)),
        memory_(memory),
        threads_(job.cluster().server_threads()) {}

  // Where the view places this shard's blocks.
  absl::StatusOr<Placement> PlacementOf(const proto::View& view) const;
  // The learning rate that the view's layout or the job says.
  void UseRate(const proto::View& view);
  Range BlockRange(int64_t block) const;  // its values of the flat vector

  const proto::Job job_;
  const int shard_;
  Optimizer optimizer_;  // the job's; from the first view on its script's, if it has one
  const BlockMemory memory_;

  // From the first view on.
  std::optional<LearningRate> learning_rate_;
  std::optional<ParameterGroups> groups_;
  std::optional<BlockStore> store_;
  proto::Layout layout_;
  Range blocks_;
  int64_t trainable_ = 0;  // values of the flat vector before averages of statistics
  CodedBlocks coded_;
  UpdateThreads threads_;

  // A payload that has just arrived is borrowed, and usually used at once, without a copy.
  struct Arrived {
    PayloadId id = 0;  // 0: none
    int64_t block = 0;
    const ReceivedValues* values = nullptr;
  };
  Arrived arrived_;
  absl::flat_hash_map<PayloadId, std::shared_ptr<FloatBuffer>> held_;  // that wait for others
  PayloadId last_payload_ = 0;
};

}  // namespace rubato

#endif  // RUBATO_SERVER_SHARD_FLOAT_VALUES_H_
