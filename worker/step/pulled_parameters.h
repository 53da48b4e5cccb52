// The parameters that a worker has pulled, as they arrive: the streams fill them in block by block,
// and a computation that has begun early waits for those that it needs next.
#ifndef RUBATO_WORKER_STEP_PULLED_PARAMETERS_H_
#define RUBATO_WORKER_STEP_PULLED_PARAMETERS_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/base/monotonic.h"
#include "common/frames/frame.h"
#include "common/frames/received_values.h"
#include "common/space/placement.h"
#include "worker/session/pulled_blocks.h"
#include "worker/step/parameter_memory.h"
#include "worker/step/reader_memory.h"

namespace rubato {

// One thread pulls and computes, its owner; others bring frames.
class PulledParameters {
 public:
  using Pull = PulledBlocks::Pull;
  using Arrived = PulledBlocks::Arrived;
  // Called by the threads that bring frames, with no lock held but for on_block.
  struct Callbacks {
    // A block of the outstanding pull has been filled in, if it is no observer's; one at a time.
    // May be null.
    std::function<void(const Frame& frame)> on_block;
    // MayBegin has become true for this pull.
    std::function<void(uint64_t pull)> on_first;
    // All are here; not if a computation has begun, whose Await tells it.
    std::function<void(const Arrived& arrived)> on_all;
  };

  // While `*interruptions` is not 0 no computation waits. Whoever makes it so calls Wake behind.
  explicit PulledParameters(const std::atomic<int>* interruptions)
      : interruptions_(*interruptions) {}

  // Before a first pull, while no thread brings frames. `first`: the values that a computation
  // needs first. They lie in memory that `pin` pins, if it does, or in the `reader`'s, which is
  // called with no lock of this held.
  void Open(const Placement& placement, Range first, Callbacks callbacks,
            const PinMemory& pin = nullptr, ReaderMemory reader = nullptr)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Frees the memory, and what was borrowed from servers; no thread brings frames any more.
  void Close() ABSL_LOCKS_EXCLUDED(mutex_);

  // Owner: from now on blocks count for this pull only, and no computation is using them. It waits
  // for them from now on or, with `is_busy`, from BecomeIdle on.
  void Begin(const Pull& pull, bool is_busy = false) ABSL_LOCKS_EXCLUDED(mutex_);
  void BecomeIdle() ABSL_LOCKS_EXCLUDED(mutex_);

  // Fills in a block, if it answers the outstanding pull. Internal if no honest shard sends it.
  absl::Status OnFrame(int shard, const Frame& frame, const ReceivedValues& values)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Owner: the number of the pull for which a computation may begin now, before all is here.
  std::optional<uint64_t> MayBegin() const ABSL_LOCKS_EXCLUDED(mutex_);

  // Owner: a computation begins early; from now on Await tells it what is here, until
  // `deadline` (of MonotonicNow).
  // False if it may not: on_all has been called, or will be.
  bool Use(absl::Time deadline) ABSL_LOCKS_EXCLUDED(mutex_);
  // Any thread of that computation: whether `values` may be read, as soon as they may. False if
  // the computation has to end: interrupted, or the step has passed. If all of the flat space may
  // be read once, all may be from then on.
  bool Await(Range values) ABSL_LOCKS_EXCLUDED(mutex_);
  // Owner: what came of the pull of a computation for which Await(all of the flat space) was true.
  Arrived FinishUse() ABSL_LOCKS_EXCLUDED(mutex_);
  // Owner: the computation has ended because Await said so: on_all has been called now, or will be.
  void Abandon() ABSL_LOCKS_EXCLUDED(mutex_);

  void Wake() ABSL_LOCKS_EXCLUDED(mutex_) { MonotonicLock lock(&mutex_); }

  // For the owner, while all is here.
  absl::Span<const float> values() const { return memory_->values(); }
  int64_t version(int64_t block) const ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return blocks_.version(block);
  }

  // Of the last pull, when all is here.
  struct Times {
    int64_t begun = 0, arrived = 0;  // MonotonicNanos
    int64_t waited = 0;              // nanoseconds that the owner had nothing else to do
  };
  Times times() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Of the payloads that have come since the last call.
  int64_t TakePulledBytes() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  bool interrupted() const { return interruptions_ != 0; }
  // How long the owner has been idle.
  int64_t IdleUntil(int64_t now) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return idle_since_ == 0 ? 0 : now - idle_since_;
  }

  const std::atomic<int>& interruptions_;
  std::optional<FlatSpace> space_;
  Callbacks callbacks_;
  // Of a block: its streams' thread writes it until it is here, and from then on all may read it.
  std::optional<ParameterMemory> memory_;

  mutable MonotonicMutex mutex_;
  PulledBlocks blocks_ ABSL_GUARDED_BY(mutex_){Placement::Even(FlatSpace(0, 1), 1), {}};
  int64_t filling_ ABSL_GUARDED_BY(mutex_) = 0;  // blocks that are being written
  bool in_use_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Time deadline_ ABSL_GUARDED_BY(mutex_);
  std::thread::id owner_ ABSL_GUARDED_BY(mutex_);
  Times times_ ABSL_GUARDED_BY(mutex_);
  int64_t idle_since_ ABSL_GUARDED_BY(mutex_) = 0;  // nanoseconds; 0: the owner is busy
};

}  // namespace rubato

#endif  // RUBATO_WORKER_STEP_PULLED_PARAMETERS_H_
