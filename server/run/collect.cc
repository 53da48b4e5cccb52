#include "server/run/collect.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
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

// What streams say of the shard that is number `index` among theirs.
absl::Status Renumbered(const absl::Status& status, int index, int shard) {
  absl::string_view message = status.message();
  if (!absl::ConsumePrefix(&message, absl::StrCat("shard ", index, " "))) return status;
  return absl::Status(status.code(), absl::StrCat("shard ", shard, " ", message));
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
  callbacks.on_failure = [&](int index, const absl::Status& status) {
    MonotonicLock lock(&end->mutex);
    failure.Update(Renumbered(status, index, shard));
  };
  ShardStreams streams({ShardAddresses(view)[shard]}, StreamScope{job_digest, view.term()},
                       connection, std::move(callbacks));
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
    streams.Send(0, PullOf(view, selection, blocks), {});
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

namespace {

// How many floats are on their way; each buffer tells when it goes.
struct SentFloats {
  MonotonicMutex mutex;
  int64_t bytes ABSL_GUARDED_BY(mutex) = 0;
  bool has_failed ABSL_GUARDED_BY(mutex) = false;
};

std::shared_ptr<std::vector<float>> TakeBuffer(size_t size,
                                               const std::shared_ptr<SentFloats>& sent) {
  const int64_t bytes = static_cast<int64_t>(size * sizeof(float));
  {
    MonotonicLock lock(&sent->mutex);
    sent->bytes += bytes;
  }
  return {new std::vector<float>(size), [sent, bytes](std::vector<float>* buffer) {
            delete buffer;
            MonotonicLock lock(&sent->mutex);
            sent->bytes -= bytes;
          }};
}

}  // namespace

absl::StatusOr<std::unique_ptr<ShardStreams>> SendBlocks(
    const proto::Job& job, const proto::View& view, const std::vector<int>& shards, int vectors,
    const std::string& job_digest, const ConnectionOptions& connection, CollectEnd* end,
    std::function<void(absl::Status)> on_failure, FloatSource source) {
  constexpr absl::Duration kBetweenLooks = absl::Milliseconds(100);
  RUBATO_ASSIGN_OR_RETURN(const Placement placement, Placement::Of(job, view));
  const auto sent = std::make_shared<SentFloats>();
  ShardStreams::Callbacks callbacks;
  callbacks.on_frame = [](int, const Frame&, const ReceivedValues&) {};
  callbacks.on_failure = [sent, shards, on_failure = std::move(on_failure)](
                             int index, const absl::Status& status) {
    {
      MonotonicLock lock(&sent->mutex);
      sent->has_failed = true;
    }
    on_failure(Renumbered(status, index, shards[index]));
  };
  std::vector<std::string> addresses;
  for (const int shard : shards) addresses.push_back(ShardAddresses(view)[shard]);
  auto streams = std::make_unique<ShardStreams>(addresses, StreamScope{job_digest, view.term()},
                                                connection, std::move(callbacks));
  const auto has_room = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(sent->mutex) {
    return sent->bytes < kMaxBytesUnderWay || sent->has_failed;
  };
  for (size_t i = 0; i < shards.size(); ++i) {
    const Range blocks = placement.Blocks(shards[i]);
    for (int64_t block = blocks.begin; block < blocks.end; ++block) {
      const Range range = placement.space().BlockValues(block);
      for (int vector = 0; vector < vectors; ++vector) {
        {
          MonotonicLock lock(&sent->mutex);
          while (!sent->mutex.AwaitFor(absl::Condition(&has_room), kBetweenLooks)) {
            MonotonicLock end_lock(&end->mutex);
            if (end->is_set) return absl::CancelledError("the job has ended");
          }
          if (sent->has_failed) return streams;  // who listens has heard of it
        }
        const std::shared_ptr<std::vector<float>> values = TakeBuffer(range.size(), sent);
        RUBATO_RETURN_IF_ERROR(source(vector, range.begin, absl::MakeSpan(*values)));
        Frame frame;
        frame.kind = FrameKind::kRestore;
        frame.worker = kObserver;
        frame.block = static_cast<uint64_t>(block);
        frame.slot = static_cast<uint32_t>(vector);
        frame.unit = view.restore_key();
        streams->Send(static_cast<int>(i), frame, Payload{values, *values});
      }
    }
  }
  return streams;
}

}  // namespace rubato
