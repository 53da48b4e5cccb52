#include "server/collect.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "common/safetensors.h"
#include "common/status.h"
#include "common/wire/shard_streams.h"

namespace rubato {

absl::StatusOr<std::vector<float>> CollectParameters(const proto::View& view,
                                                     const FlatSpace& space, int64_t version,
                                                     const std::string& job_digest,
                                                     absl::Duration timeout) {
  std::vector<float> parameters(space.values());
  absl::Mutex mutex;
  int64_t missing = space.blocks();
  absl::Status failure;
  ShardStreams::Callbacks callbacks;
  callbacks.on_message = [&](int shard, const Message& message) {
    absl::MutexLock lock(&mutex);
    const int64_t block = static_cast<int64_t>(message.frame.block);
    if (message.frame.kind != FrameKind::kParameters || !space.ShardBlocks(shard).Contains(block) ||
        static_cast<int64_t>(message.payload.values.size()) != space.BlockValues(block).size()) {
      failure.Update(absl::InternalError(absl::StrFormat(
          "shard %d sent %d values as block %d", shard, message.payload.values.size(), block)));
      return;
    }
    std::copy(message.payload.values.begin(), message.payload.values.end(),
              parameters.begin() + space.BlockValues(block).begin);
    --missing;
  };
  callbacks.on_failure = [&](int, const absl::Status& status) {
    absl::MutexLock lock(&mutex);
    failure.Update(status);
  };
  const std::vector<std::string> addresses(view.shards().begin(), view.shards().end());
  auto streams = std::make_unique<ShardStreams>(addresses, job_digest, std::move(callbacks));
  for (int shard = 0; shard < space.shards(); ++shard) {
    const Range blocks = space.ShardBlocks(shard);
    if (blocks.empty()) continue;
    Frame pull;
    pull.kind = FrameKind::kPull;
    pull.view = view.number();
    pull.worker = kObserver;
    pull.block = static_cast<uint64_t>(blocks.begin);
    pull.block_count = static_cast<uint32_t>(blocks.size());
    pull.clock = static_cast<uint64_t>(version);
    streams->Send(shard, pull, {});
  }
  const auto done = [&] { return missing == 0 || !failure.ok(); };
  mutex.LockWhenWithTimeout(absl::Condition(&done), timeout);
  mutex.Unlock();
  streams.reset();  // no callback runs from here on
  if (!failure.ok()) return failure;
  if (missing > 0) {
    return absl::DeadlineExceededError(
        absl::StrFormat("%d of %d blocks of the final parameters did not come within %s", missing,
                        space.blocks(), absl::FormatDuration(timeout)));
  }
  return parameters;
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
