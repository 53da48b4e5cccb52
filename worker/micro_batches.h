// Gradients of runs of micro-batches, added along the fixed tree; blocks leave as soon as they are
// whole.
#ifndef RUBATO_WORKER_MICRO_BATCHES_H_
#define RUBATO_WORKER_MICRO_BATCHES_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "common/flat_space.h"
#include "common/sample_schedule.h"
#include "common/wire/payload.h"
#include "worker/batch_reader.h"
#include "worker/loss.h"
#include "worker/model.h"

namespace rubato {

// With several models it computes as many micro-batches side by side, each on a thread of its own:
// since a micro-batch is one thread's work and sums follow the tree, their number changes no bit.
class MicroBatches {
 public:
  // What is pushed: the sum's values of one block, last blocks first.
  using Push = absl::FunctionRef<void(int64_t block, const Payload& payload)>;

  // All must outlive it. The models, at least one, are alike. What layers draw is a function of
  // (seed, unit, micro-batch).
  MicroBatches(std::vector<Model*> models, const FlatSpace* space, BatchReader* reader,
               uint64_t seed);
  ~MicroBatches();

  // The gradient sum over the micro-batches of `node`, a node of the tree over schedule.leaves(),
  // of `unit`. Returns the result of each micro-batch, in order. Pushes on the caller's thread.
  std::vector<BatchResult> Compute(const SampleSchedule& schedule, int64_t unit, Range node,
                                   absl::Span<const float> parameters, Push push);

 private:
  using Gradient = std::shared_ptr<std::vector<float>>;
  struct Sum {
    Range node;
    Gradient gradient;
  };
  // An addition to a gradient, value by value.
  struct Addition {
    Gradient from;
    float* to;
  };

  // What computes one micro-batch at a time.
  struct Lane {
    Model* model;
    Batch batch;
    BatchResult result;
    std::function<void()> work;  // empty: nothing to do
    int64_t ready = 0;           // values from here on are final
    std::thread thread;          // none of the first, which is the caller's
  };

  // A buffer that nobody reads any more.
  Gradient TakeBuffer();
  void RunLane(Lane* lane) ABSL_LOCKS_EXCLUDED(mutex_);
  void SetReady(Lane* lane, int64_t begin) ABSL_LOCKS_EXCLUDED(mutex_);
  // The first value from which on all is final in the lanes 1 to `count` - 1; waits until it is
  // below `than`.
  int64_t OthersReadyBelow(int64_t than, size_t count) ABSL_LOCKS_EXCLUDED(mutex_);

  const FlatSpace* const space_;
  BatchReader* const reader_;
  const uint64_t seed_;
  std::vector<Gradient> buffers_;
  // The first is the caller's. `work` and `ready` are guarded by the mutex; the rest is of who has
  // its work.
  std::vector<std::unique_ptr<Lane>> lanes_;

  absl::Mutex mutex_;
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace rubato

#endif  // RUBATO_WORKER_MICRO_BATCHES_H_
