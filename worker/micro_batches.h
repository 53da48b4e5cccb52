// Gradients of runs of micro-batches, added along the fixed tree; blocks leave as soon as they are
// whole.
#ifndef RUBATO_WORKER_MICRO_BATCHES_H_
#define RUBATO_WORKER_MICRO_BATCHES_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "common/flat_space.h"
#include "common/sample_schedule.h"
#include "common/wire/payload.h"
#include "worker/batch_reader.h"
#include "worker/loss.h"
#include "worker/model.h"

namespace rubato {

class MicroBatches {
 public:
  // What is pushed: the sum's values of one block, last blocks first.
  using Push = absl::FunctionRef<void(int64_t block, const Payload& payload)>;

  // All must outlive it. What layers draw is a function of (seed, unit, micro-batch).
  MicroBatches(Model* model, const FlatSpace* space, BatchReader* reader, uint64_t seed);

  // The gradient sum over the micro-batches of `node`, a node of the tree over schedule.leaves(),
  // of `unit`. Returns the result of each micro-batch, in order.
  std::vector<BatchResult> Compute(const SampleSchedule& schedule, int64_t unit, Range node,
                                   absl::Span<const float> parameters, Push push);

 private:
  using Gradient = std::shared_ptr<std::vector<float>>;
  struct Sum {
    Range node;
    Gradient gradient;
  };

  // A buffer that nobody reads any more.
  Gradient TakeBuffer();

  Model* const model_;
  const FlatSpace* const space_;
  BatchReader* const reader_;
  const uint64_t seed_;
  std::vector<Gradient> buffers_;
};

}  // namespace rubato

#endif  // RUBATO_WORKER_MICRO_BATCHES_H_
