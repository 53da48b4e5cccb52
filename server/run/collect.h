// Transfers the floats of shards over the same streams that workers use: reads them as an observer,
// and sends the initial values of a job. Only some megabytes are in flight at any time, whatever
// the size of the model.
#ifndef RUBATO_SERVER_RUN_COLLECT_H_
#define RUBATO_SERVER_RUN_COLLECT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/base/monotonic.h"
#include "common/frames/payload.h"
#include "common/space/flat_space.h"
#include "common/wire/connection_options.h"
#include "common/wire/shard_streams.h"
#include "proto/job.pb.h"
#include "proto/view.pb.h"

namespace rubato {

// The most bytes of floats in flight, or a block of each vector if that is more.
constexpr int64_t kMaxBytesUnderWay = 16 << 20;

// What to read of each block.
struct Selection {
  int64_t version = 0;    // parameters at this version or later, if there is no snapshot
  uint32_t snapshot = 0;  // what this snapshot holds
  int slots = 0;          // of the optimizer that come with it
};

// Which blocks of which slots are still missing, and the deadline for them: each block that arrives
// extends it by `silence`.
class AwaitedBlocks {
 public:
  AwaitedBlocks(int64_t blocks, int64_t slots, absl::Duration silence, absl::Time now)
      : blocks_(blocks),
        silence_(silence),
        has_come_(static_cast<size_t>(blocks * slots)),
        missing_(blocks * slots),
        deadline_(now + silence) {}

  // One that has come before is no matter.
  void OnBlock(int64_t block, int64_t slot, absl::Time now);
  absl::Time deadline() const { return deadline_; }
  int64_t missing() const { return missing_; }
  int64_t size() const { return static_cast<int64_t>(has_come_.size()); }

 private:
  int64_t blocks_;
  absl::Duration silence_;
  std::vector<bool> has_come_;  // (slots, blocks)
  int64_t missing_;
  absl::Time deadline_;
};

// Lets another thread end a collection.
struct CollectEnd {
  void Set() ABSL_LOCKS_EXCLUDED(mutex) {
    MonotonicLock lock(&mutex);
    is_set = true;
  }

  MonotonicMutex mutex;
  bool is_set ABSL_GUARDED_BY(mutex) = false;
};

// Takes one vector of a block: 0 the parameters, then the optimizer's slots.
using TakeBlock =
    absl::FunctionRef<absl::Status(int64_t block, size_t vector, absl::Span<const float> values)>;

// Reads the blocks of `shard` in order. DeadlineExceeded if some are missing and none has come for
// `silence`; the error of a stream that breaks, or of `take`; Cancelled when `end` is set, even
// while the connection is still being made.
absl::Status ReadBlocks(const proto::Job& job, const proto::View& view, int shard,
                        const Selection& selection, const std::string& job_digest,
                        const ConnectionOptions& connection, absl::Duration silence,
                        CollectEnd* end, TakeBlock take);

// Fills `out` with the values from `begin` on of a flat vector.
using FloatSource =
    absl::FunctionRef<absl::Status(size_t vector, int64_t begin, absl::Span<float> out)>;

// Buffers of floats that are under way: kMaxBytesUnderWay of them, and one more. Any thread.
class FloatWindow : public std::enable_shared_from_this<FloatWindow> {
 public:
  // Waits for room and returns a buffer for `values` values, which counts until it is released.
  // Null as soon as `is_over`, which is polled, returns true.
  std::shared_ptr<std::vector<float>> Take(size_t values, absl::FunctionRef<bool()> is_over)
      ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  MonotonicMutex mutex_;
  int64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

using GiveFrame = absl::FunctionRef<void(const Frame& frame, const Payload& payload)>;

// Gives the frames that a shard gets its values by: `vectors` vectors of each of `blocks`. Errors
// of `source`; Cancelled when `is_over` says so.
absl::Status GiveBlocks(const FlatSpace& space, Range blocks, int vectors, uint64_t restore_key,
                        absl::FunctionRef<bool()> is_over, FloatSource source, GiveFrame give);

// Sends the shard its blocks. The streams must live until the shard has answered the coordinator.
// `on_failure` hears of a stream that breaks. Errors as GiveBlocks, when `end` is set.
absl::StatusOr<std::unique_ptr<ShardStreams>> SendBlocks(
    const proto::Job& job, const proto::View& view, int shard, int vectors,
    const std::string& job_digest, const ConnectionOptions& connection, CollectEnd* end,
    std::function<void(absl::Status)> on_failure, FloatSource source);

}  // namespace rubato

#endif  // RUBATO_SERVER_RUN_COLLECT_H_
