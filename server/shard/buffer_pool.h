// Memory for what training overwrites while a snapshot of it is kept, in buffers of one size.
// The first touch of memory costs several times as much as copying into it. So an idle thread
// touches the buffers in advance, and used buffers are used again. Any thread.
#ifndef RUBATO_SERVER_SHARD_BUFFER_POOL_H_
#define RUBATO_SERVER_SHARD_BUFFER_POOL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "common/wire/shared_arena.h"

namespace rubato {

// A fixed number of floats, aligned to a cache line.
class FloatBuffer {
 public:
  // Zeroes, or whatever values. ResourceExhausted if there is no memory for them.
  // In `arena` if there is one and it has memory.
  static absl::StatusOr<std::shared_ptr<FloatBuffer>> Create(int64_t size, bool zeroed = true,
                                                             SharedArena* arena = nullptr);
  // The first `size` floats of `data`.
  FloatBuffer(std::shared_ptr<char> data, size_t size) : data_(std::move(data)), size_(size) {}

  absl::Span<float> values() { return {data(), size_}; }
  absl::Span<const float> values() const { return {data(), size_}; }

 private:
  float* data() const { return reinterpret_cast<float*>(data_.get()); }

  const std::shared_ptr<char> data_;
  const size_t size_;
};

class BufferPool : public std::enable_shared_from_this<BufferPool> {
 public:
  // In `arena`, if there is one and it has memory.
  explicit BufferPool(std::shared_ptr<SharedArena> arena) : arena_(std::move(arena)) {}

  // From now on it has buffers of `size` floats, and Fill makes `count` of them.
  void Plan(int64_t size, int64_t count) ABSL_LOCKS_EXCLUDED(mutex_);
  // Makes buffers until there are as many as planned, there is no memory for more, or `stops` says
  // so.
  void Fill(absl::FunctionRef<bool()> stops) ABSL_LOCKS_EXCLUDED(mutex_);

  // A buffer with whatever values, which comes back to the pool by itself. `size` is the plan's at
  // most. ResourceExhausted as FloatBuffer::Create.
  absl::StatusOr<std::shared_ptr<FloatBuffer>> Take(int64_t size) ABSL_LOCKS_EXCLUDED(mutex_);

  // Buffers that nobody has.
  size_t spare() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void GiveBack(const std::shared_ptr<FloatBuffer>& buffer) ABSL_LOCKS_EXCLUDED(mutex_);

  const std::shared_ptr<SharedArena> arena_;
  mutable absl::Mutex mutex_;
  int64_t size_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t planned_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t made_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::shared_ptr<FloatBuffer>> spare_ ABSL_GUARDED_BY(mutex_);
};

// Where the blocks of a shard lie: parameters in memory that can be lent, slots elsewhere.
struct BlockMemory {
  // `arena` may be null.
  explicit BlockMemory(std::shared_ptr<SharedArena> arena)
      : arena(arena),
        parameters(std::make_shared<BufferPool>(arena)),
        slots(std::make_shared<BufferPool>(nullptr)) {}

  std::shared_ptr<SharedArena> arena;
  std::shared_ptr<BufferPool> parameters, slots;
  // Of at most so many bytes a snapshot is copied. On two cores a shard of 0.8 MB took 0.1 ms to
  // copy; without a copy training lost 0.25 ms, since it went on in buffers that were in no cache
  // and that workers had not mapped. With 3 MB neither was better.
  int64_t copied = 4 << 20;
};

}  // namespace rubato

#endif  // RUBATO_SERVER_SHARD_BUFFER_POOL_H_
