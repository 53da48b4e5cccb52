// Optimizers: how a block's gradient sum turns its parameters into the next version.
//
// A server knows spans of the flat parameter vector, not tensors, so an optimizer is an
// element-by-element rule over a span, plus so many extra floats ("slots") for each parameter. Any
// cut of a span gives the same bits, at every level of instruction set. The state of a parameter is
// its slots and the number of updates that it has had; both belong to the caller, which keeps them
// beside the block. The rules' formulas and slots are in server/optimizers/.
#ifndef RUBATO_SERVER_OPTIMIZERS_OPTIMIZER_H_
#define RUBATO_SERVER_OPTIMIZERS_OPTIMIZER_H_

#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/optimizers/adagrad.h"
#include "common/optimizers/adam.h"
#include "common/optimizers/rmsprop.h"
#include "common/optimizers/rule.h"
#include "common/optimizers/sgd.h"
#include "proto/job.pb.h"

namespace rubato {

// The update rule of a job, made from its settings. Immutable, so it may be used by any number of
// threads at once.
class Optimizer {
 public:
  using Update = OptimizerUpdate;

  // InvalidArgument if the settings contradict each other or name no known optimizer. Ignores
  // parameter groups (see server/optimizers/parameter_groups.h).
  static absl::StatusOr<Optimizer> Create(const proto::Optimizer& settings);

  // Names of the floats kept for each parameter besides its value, e.g. {"momentum_buffer"}, as
  // checkpoints and PyTorch's state_dict call them. Their values before the first update are 0.
  const std::vector<std::string>& slots() const { return slots_; }

  // Writes the next version of the parameters to `spans.out`, and of the slots, of which there are
  // slots().size(), to `spans.slots`.
  void Apply(const Update& update, const OptimizerSpans& spans) const;

 private:
  using Rule = std::variant<Sgd, Adam, Adagrad, RmsProp>;

  explicit Optimizer(Rule rule);

  Rule rule_;
  std::vector<std::string> slots_;
};

// The job's settings as its servers apply them: with top-k the momentum is the workers'
// (worker/step/residuals.h).
proto::Optimizer ServerOptimizer(const proto::Job& job);

}  // namespace rubato

#endif  // RUBATO_SERVER_OPTIMIZERS_OPTIMIZER_H_
