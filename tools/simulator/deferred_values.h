// The floats of a simulated shard, whose sums and updates take time.
#ifndef RUBATO_TOOLS_SIMULATOR_DEFERRED_VALUES_H_
#define RUBATO_TOOLS_SIMULATOR_DEFERRED_VALUES_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "server/shard/shard_values.h"

namespace rubato {

class DeferredValues : public ShardValues {
 public:
  // `defer` is asked for each change of a block: whether shard_event::ChangeDue will follow.
  DeferredValues(std::unique_ptr<ShardValues> values, std::function<bool(int64_t block)> defer)
      : values_(std::move(values)), defer_(std::move(defer)) {}

  bool TakesTime(int64_t block) override { return defer_(block); }

  absl::StatusOr<Range> Open(const proto::View& view) override { return values_->Open(view); }
  absl::StatusOr<Range> GoOn(const proto::View& view) override { return values_->GoOn(view); }
  size_t BlockSize(int64_t block) const override { return values_->BlockSize(block); }
  size_t slots() const override { return values_->slots(); }
  PayloadId Arrive(const Frame& frame, const ReceivedValues& values) override {
    return values_->Arrive(frame, values);
  }
  void EndArrival() override { values_->EndArrival(); }
  void Release(PayloadId payload) override { values_->Release(payload); }
  void Sum(const shard_action::Sum& sum) override { values_->Sum(sum); }
  Block Apply(const shard_action::Apply& apply) override { return values_->Apply(apply); }
  void Skip(const shard_action::Skip& skip) override { values_->Skip(skip); }
  std::optional<int64_t> Measure(const shard_action::Measure& measure,
                                 SumOfSquares* squares) override {
    return values_->Measure(measure, squares);
  }
  Payload Read(const shard_action::Send& send, Frame* frame) override {
    return values_->Read(send, frame);
  }
  std::vector<Payload> Copy(int64_t block) override { return values_->Copy(block); }
  void Restore(int64_t block, uint32_t slot, const ReceivedValues& values) override {
    values_->Restore(block, slot, values);
  }

 private:
  const std::unique_ptr<ShardValues> values_;
  const std::function<bool(int64_t block)> defer_;
};

}  // namespace rubato

#endif  // RUBATO_TOOLS_SIMULATOR_DEFERRED_VALUES_H_
