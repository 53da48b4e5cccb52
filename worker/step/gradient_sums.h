// Gradient sums of runs of micro-batches, whoever computes the gradients: the models of this
// process (micro_batches.h), or a script (worker/script/script_values.h).
#ifndef RUBATO_WORKER_STEP_GRADIENT_SUMS_H_
#define RUBATO_WORKER_STEP_GRADIENT_SUMS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/frames/payload.h"
#include "common/space/flat_space.h"
#include "common/space/sample_schedule.h"
#include "worker/model/loss.h"
#include "worker/model/model.h"

namespace rubato {

class GradientSums {
 public:
  // What is pushed: the sum's values of one block, last blocks first.
  using Push = absl::FunctionRef<void(int64_t block, const Payload& payload)>;

  virtual ~GradientSums() = default;

  // The gradient sum over the micro-batches of `node`, a node of the tree over schedule.leaves(),
  // of `unit`: divided by the unit's samples it is PyTorch's, without the labels that are ignored.
  // Returns the result of each micro-batch, in order. Pushes on the caller's thread. `await` as in
  // Model::Gradient, asked by several threads; Cancelled, and nothing has been pushed, if it says
  // no. Once all parameters have arrived it says yes.
  virtual absl::StatusOr<std::vector<BatchResult>> Compute(const SampleSchedule& schedule,
                                                           int64_t unit, Range node,
                                                           absl::Span<const float> parameters,
                                                           Push push, AwaitParameters await) = 0;
  // While Compute pushes: what the sum divided by is its mean. Nothing: its samples.
  virtual std::optional<int64_t> weight() const { return std::nullopt; }
  // While Compute pushes: whether all it has pushed so far, and what it pushes, is known to be
  // finite.
  virtual bool is_known_finite() const { return false; }
};

}  // namespace rubato

#endif  // RUBATO_WORKER_STEP_GRADIENT_SUMS_H_
