#include "server/run/collect.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/base/monotonic.h"
#include "common/base/status.h"
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

int64_t WindowBlocks(const FlatSpace& space, int vectors) {
  const int64_t bytes = space.block_values() * static_cast<int64_t>(sizeof(float)) * vectors;
  return std::max<int64_t>(1, kMaxBytesUnderWay / bytes);
}

// The blocks that have been asked for and are waited for.
struct BlockWindow {
  BlockWindow(Range blocks, size_t vectors, absl::Duration silence)
      : blocks(blocks),
        values(blocks.size() * vectors),
        vectors(vectors),
        awaited(blocks.size(), static_cast<int64_t>(vectors), silence, MonotonicNow()) {}

  std::vector<float>& at(int64_t block, size_t vector) {
    return values[(block - blocks.begin) * vectors + vector];
  }

  Range blocks;
  std::vector<std::vector<float>> values;
  size_t vectors;
  AwaitedBlocks awaited;
};

// Internal if it is no block that was asked for.
absl::Status Take(const FlatSpace& space, int shard, const Frame& frame,
                  const ReceivedValues& values, BlockWindow* window) {
  const int64_t block = static_cast<int64_t>(frame.block);
  if (frame.kind != FrameKind::kParameters || !window->blocks.Contains(block) ||
      frame.slot >= window->vectors ||
      static_cast<int64_t>(values.size()) != space.BlockValues(block).size()) {
    return absl::InternalError(
        absl::StrFormat("shard %d sent %d values as block %d", shard, values.size(), block));
  }
  std::vector<float>& into = window->at(block, frame.slot);
  into.resize(values.size());
  values.CopyTo(absl::MakeSpan(into));
  window->awaited.OnBlock(block - window->blocks.begin, frame.slot, MonotonicNow());
  return absl::OkStatus();
}

std::unique_ptr<ShardStreams> StreamTo(const proto::View& view, int shard, const StreamScope& scope,
                                       const ConnectionOptions& connection,
                                       ShardStreams::Callbacks callbacks) {
  return std::make_unique<ShardStreams>(
      std::vector<std::string>{ShardAddresses(view)[shard]}, scope, connection,
      std::move(callbacks), /*share_memory=*/false, /*arena=*/nullptr, /*first_shard=*/shard);
}

Frame PullOf(const proto::View& view, const Selection& selection, Range blocks) {
  Frame pull;
  pull.kind = FrameKind::kPull;
  pull.view = view.number();
  pull.worker = kObserver;
  pull.set_blocks(blocks);
  pull.clock = static_cast<uint64_t>(selection.version);
  pull.snapshot = selection.snapshot;
  return pull;
}

}  // namespace

absl::Status ReadBlocks(const proto::Job& job, const proto::View& view, int shard,
                        const Selection& selection, const std::string& job_digest,
                        const ConnectionOptions& connection, absl::Duration silence,
                        CollectEnd* end, TakeBlock take) {
  RUBATO_ASSIGN_OR_RETURN(const Placement placement, Placement::Of(job, view));
  const FlatSpace& space = placement.space();
  const Range all = placement.Blocks(shard);
  if (all.empty()) return absl::OkStatus();
  const int vectors = 1 + selection.slots;
  std::optional<BlockWindow> window;  // under end->mutex, as is the failure
  absl::Status failure;
  ShardStreams::Callbacks callbacks;
  callbacks.on_frame = [&](int, const Frame& frame, const ReceivedValues& values) {
    MonotonicLock lock(&end->mutex);
    failure.Update(window.has_value() ? Take(space, shard, frame, values, &*window)
                                      : absl::InternalError(absl::StrFormat(
                                            "shard %d sent block %d, which nobody has asked for",
                                            shard, frame.block)));
  };
  callbacks.on_failure = [&](int, const absl::Status& status) {
    MonotonicLock lock(&end->mutex);
    failure.Update(status);
  };
  const auto streams =
      StreamTo(view, shard, StreamScope{job_digest, view.term()}, connection, std::move(callbacks));
  const auto done = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(end->mutex) {
    return window->awaited.missing() == 0 || !failure.ok() || end->is_set;
  };
  const int64_t step = WindowBlocks(space, vectors);
  for (int64_t begin = all.begin; begin < all.end; begin += step) {
    const Range blocks = {begin, std::min(begin + step, all.end)};
    {
      MonotonicLock lock(&end->mutex);
      window.emplace(blocks, vectors, silence);
    }
    streams->Send(shard, PullOf(view, selection, blocks), {});
    std::optional<BlockWindow> whole;
    {
      MonotonicLock lock(&end->mutex);
      while (!end->mutex.AwaitUntil(absl::Condition(&done), window->awaited.deadline()) &&
             MonotonicNow() < window->awaited.deadline()) {
      }
      if (!failure.ok()) return failure;
      const AwaitedBlocks& awaited = window->awaited;
      if (awaited.missing() > 0 && end->is_set) return absl::CancelledError("the job has ended");
      if (awaited.missing() > 0) {
        return absl::DeadlineExceededError(absl::StrFormat(
            "%d of %d blocks of shard %d have not come, and none for %s", awaited.missing(),
            awaited.size(), shard, absl::FormatDuration(silence)));
      }
      whole.swap(window);
    }
    for (int64_t block = blocks.begin; block < blocks.end; ++block) {
      for (int vector = 0; vector < vectors; ++vector) {
        RUBATO_RETURN_IF_ERROR(take(block, vector, whole->at(block, vector)));
      }
    }
  }
  return absl::OkStatus();
}

std::shared_ptr<std::vector<float>> FloatWindow::Take(size_t values,
                                                      absl::FunctionRef<bool()> is_over) {
  constexpr absl::Duration kBetweenLooks = absl::Milliseconds(100);
  const auto bytes = static_cast<int64_t>(values * sizeof(float));
  const auto has_room = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return bytes_ < kMaxBytesUnderWay;
  };
  while (true) {
    if (is_over()) return nullptr;
    MonotonicLock lock(&mutex_);
    if (mutex_.AwaitFor(absl::Condition(&has_room), kBetweenLooks)) {
      bytes_ += bytes;
      break;
    }
  }
  return {new std::vector<float>(values),
          [self = shared_from_this(), bytes](std::vector<float>* buffer) {
            delete buffer;
            MonotonicLock lock(&self->mutex_);
            self->bytes_ -= bytes;
          }};
}

absl::Status GiveBlocks(const FlatSpace& space, Range blocks, int vectors, uint64_t restore_key,
                        absl::FunctionRef<bool()> is_over, FloatSource source, GiveFrame give) {
  const auto window = std::make_shared<FloatWindow>();
  for (int64_t block = blocks.begin; block < blocks.end; ++block) {
    const Range range = space.BlockValues(block);
    for (int vector = 0; vector < vectors; ++vector) {
      const std::shared_ptr<std::vector<float>> values = window->Take(range.size(), is_over);
      if (values == nullptr) return absl::CancelledError("the job has ended");
      RUBATO_RETURN_IF_ERROR(source(vector, range.begin, absl::MakeSpan(*values)));
      Frame frame;
      frame.kind = FrameKind::kRestore;
      frame.worker = kObserver;
      frame.block = static_cast<uint64_t>(block);
      frame.slot = static_cast<uint32_t>(vector);
      frame.unit = restore_key;
      give(frame, Payload{values, *values});
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<ShardStreams>> SendBlocks(
    const proto::Job& job, const proto::View& view, int shard, int vectors,
    const std::string& job_digest, const ConnectionOptions& connection, CollectEnd* end,
    std::function<void(absl::Status)> on_failure, FloatSource source) {
  RUBATO_ASSIGN_OR_RETURN(const Placement placement, Placement::Of(job, view));
  const auto has_failed = std::make_shared<std::atomic<bool>>(false);
  ShardStreams::Callbacks callbacks;
  callbacks.on_frame = [](int, const Frame&, const ReceivedValues&) {};
  callbacks.on_failure = [has_failed, on_failure = std::move(on_failure)](
                             int, const absl::Status& status) {
    *has_failed = true;
    on_failure(status);
  };
  auto streams =
      StreamTo(view, shard, StreamScope{job_digest, view.term()}, connection, std::move(callbacks));
  const absl::Status given = GiveBlocks(
      placement.space(), placement.Blocks(shard), vectors, view.restore_key(),
      [&] {
        MonotonicLock lock(&end->mutex);
        return end->is_set || *has_failed;
      },
      source,
      [&](const Frame& frame, const Payload& payload) { streams->Send(shard, frame, payload); });
  if (!given.ok() && !*has_failed) return given;  // else who listens has heard of it
  return streams;
}

}  // namespace rubato
