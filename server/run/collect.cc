#include "server/run/collect.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/base/monotonic.h"
#include "common/base/status.h"
#include "common/files/safetensors.h"
#include "common/space/placement.h"
#include "common/wire/shard_streams.h"

namespace rubato {

void AwaitedBlocks::OnBlock(int64_t block, int64_t slot, absl::Time now) {
  const size_t place = static_cast<size_t>(slot * blocks_ + block);
  if (has_come_[place]) return;
  has_come_[place] = true;
  --missing_;
  deadline_ = now + silence_;
}

namespace {

// Parameters, then slots: each the whole flat vector.
using Vectors = std::vector<std::vector<float>>;

// Internal if it is no block that was asked for.
absl::Status Take(const Placement& placement, int shard, const Frame& frame,
                  const ReceivedValues& values, Vectors* vectors) {
  const FlatSpace& space = placement.space();
  const int64_t block = static_cast<int64_t>(frame.block);
  if (frame.kind != FrameKind::kParameters || !placement.Blocks(shard).Contains(block) ||
      frame.slot >= vectors->size() ||
      static_cast<int64_t>(values.size()) != space.BlockValues(block).size()) {
    return absl::InternalError(
        absl::StrFormat("shard %d sent %d values as block %d", shard, values.size(), block));
  }
  std::vector<float>& vector = (*vectors)[frame.slot];
  values.CopyTo(absl::MakeSpan(vector).subspan(space.BlockValues(block).begin, values.size()));
  return absl::OkStatus();
}

void PullAll(const Placement& placement, const proto::View& view, const Selection& selection,
             ShardStreams* streams) {
  for (int shard = 0; shard < placement.shards(); ++shard) {
    const Range blocks = placement.Blocks(shard);
    if (blocks.empty()) continue;
    Frame pull;
    pull.kind = FrameKind::kPull;
    pull.view = view.number();
    pull.worker = kObserver;
    pull.set_blocks(blocks);
    pull.clock = static_cast<uint64_t>(selection.version);
    pull.snapshot = selection.snapshot;
    streams->Send(shard, pull, {});
  }
}

}  // namespace

absl::StatusOr<TrainingState> CollectState(const proto::Job& job, const proto::View& view,
                                           const Selection& selection,
                                           const std::string& job_digest,
                                           const ConnectionOptions& connection,
                                           absl::Duration silence, CollectEnd* end) {
  RUBATO_ASSIGN_OR_RETURN(const Placement placement, Placement::Of(job, view));
  const FlatSpace& space = placement.space();
  Vectors vectors(1 + selection.slots);
  for (std::vector<float>& vector : vectors) vector.resize(space.values());
  AwaitedBlocks awaited(space.blocks(), static_cast<int64_t>(vectors.size()), silence,
                        MonotonicNow());
  absl::Status failure;
  ShardStreams::Callbacks callbacks;
  callbacks.on_frame = [&](int shard, const Frame& frame, const ReceivedValues& values) {
    MonotonicLock lock(&end->mutex);
    const absl::Status taken = Take(placement, shard, frame, values, &vectors);
    failure.Update(taken);
    if (taken.ok()) awaited.OnBlock(static_cast<int64_t>(frame.block), frame.slot, MonotonicNow());
  };
  callbacks.on_failure = [&](int, const absl::Status& status) {
    MonotonicLock lock(&end->mutex);
    failure.Update(status);
  };
  auto streams = std::make_unique<ShardStreams>(
      ShardAddresses(view), StreamScope{job_digest, view.term()}, connection, std::move(callbacks));
  PullAll(placement, view, selection, streams.get());
  const auto done = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(end->mutex) {
    return awaited.missing() == 0 || !failure.ok() || end->is_set;
  };
  bool is_ended = false;
  {
    MonotonicLock lock(&end->mutex);
    while (!end->mutex.AwaitUntil(absl::Condition(&done), awaited.deadline()) &&
           MonotonicNow() < awaited.deadline()) {
    }
    is_ended = end->is_set;
  }
  streams.reset();  // no callback runs from here on
  if (!failure.ok()) return failure;
  if (awaited.missing() > 0 && is_ended) return absl::CancelledError("the job has ended");
  if (awaited.missing() > 0) {
    return absl::DeadlineExceededError(
        absl::StrFormat("%d of %d blocks have not come, and none for %s", awaited.missing(),
                        awaited.size(), absl::FormatDuration(silence)));
  }
  TrainingState state;
  state.parameters = std::move(vectors[0]);
  state.slots.assign(std::make_move_iterator(vectors.begin() + 1),
                     std::make_move_iterator(vectors.end()));
  return state;
}

absl::StatusOr<std::unique_ptr<ShardStreams>> SendState(
    const proto::Job& job, const proto::View& view, std::shared_ptr<const TrainingState> state,
    const std::string& job_digest, const ConnectionOptions& connection,
    std::function<void(absl::Status)> on_failure) {
  RUBATO_ASSIGN_OR_RETURN(const Placement placement, Placement::Of(job, view));
  ShardStreams::Callbacks callbacks;
  callbacks.on_frame = [](int, const Frame&, const ReceivedValues&) {};
  callbacks.on_failure = [on_failure = std::move(on_failure)](int, const absl::Status& status) {
    on_failure(status);
  };
  auto streams = std::make_unique<ShardStreams>(
      ShardAddresses(view), StreamScope{job_digest, view.term()}, connection, std::move(callbacks));
  for (int64_t block = 0; block < placement.space().blocks(); ++block) {
    const Range values = placement.space().BlockValues(block);
    for (size_t slot = 0; slot <= state->slots.size(); ++slot) {
      const std::vector<float>& vector = slot == 0 ? state->parameters : state->slots[slot - 1];
      Frame frame;
      frame.kind = FrameKind::kRestore;
      frame.worker = kObserver;
      frame.block = static_cast<uint64_t>(block);
      frame.slot = static_cast<uint32_t>(slot);
      frame.unit = view.restore_key();
      streams->Send(
          placement.ShardOf(block), frame,
          Payload{state, absl::MakeConstSpan(vector).subspan(values.begin, values.size())});
    }
  }
  return streams;
}

absl::StatusOr<std::string> WriteParameters(const std::string& path, const proto::Layout& layout,
                                            const std::vector<float>& parameters) {
  std::vector<TensorView> tensors;
  size_t begin = 0;
  for (const proto::Parameter& parameter : layout.parameters()) {
    TensorView tensor;
    tensor.info.name = parameter.name();
    tensor.info.shape.assign(parameter.shape().begin(), parameter.shape().end());
    const size_t count = ValueCount(parameter);
    tensor.bytes = AsBytes(absl::MakeConstSpan(parameters).subspan(begin, count));
    begin += count;
    tensors.push_back(std::move(tensor));
  }
  RUBATO_RETURN_IF_ERROR(WriteSafetensors(path, tensors, {{"format", "pt"}}));
  return TensorsDigest(tensors);
}

}  // namespace rubato
