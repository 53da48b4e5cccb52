// Optimizers: how a block's gradient sum turns its parameters into the next version.
//
// A server knows spans of the flat parameter vector, not tensors, so an optimizer is an
// element-by-element rule over a span, plus so many extra floats ("slots") for each parameter. Any
// cut of a span gives the same bits, at every level of instruction set. The state of a parameter is
// its slots and the number of updates that it has had; both belong to the caller, which keeps them
// beside the block.
#ifndef RUBATO_SERVER_OPTIMIZER_H_
#define RUBATO_SERVER_OPTIMIZER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/job.pb.h"

namespace rubato {

// Stochastic gradient descent with momentum.
struct SgdSettings {
  float momentum = 0;
  float dampening = 0;
  float weight_decay = 0;
  bool nesterov = false;
};

// One step of SGD in the formulas of torch.optim.SGD, with g = scale · gradient_sum:
//
//   g   ← g + weight_decay · w
//   m   ← g                                    if `first` (PyTorch: the buffer begins as the
//   gradient, undampened) m   ← momentum · m + (1 − dampening) · g   otherwise d   = g + momentum ·
//   m                     with nesterov d   = m                                    without; g where
//   momentum is 0 out = w − learning_rate · d
//
// (Sutskever et al., "On the importance of initialization and momentum in deep learning", ICML
// 2013, with PyTorch's placing of the learning rate.) All spans have one length, except that
// `momentum` is empty where settings.momentum is 0. `out` may be `parameters` or `gradient_sum`
// itself; otherwise no two spans may overlap. `momentum` is not read if `first`.
void SgdUpdate(const SgdSettings& settings, float learning_rate, float scale, bool first,
               absl::Span<const float> parameters, absl::Span<const float> gradient_sum,
               absl::Span<float> momentum, absl::Span<float> out);

// The update rule of a job, made from its settings. Immutable, so it may be used by any number of
// threads at once.
class Optimizer {
 public:
  // What differs from update to update.
  struct Update {
    float learning_rate = 0;  // at this point of the job, of this contribution
    float scale = 1;          // 1 / weight of the sum: the gradient is gradient_sum · scale
    int64_t count = 0;        // updates that these parameters have had before this one
  };

  // InvalidArgument if the settings contradict each other or name no known optimizer.
  static absl::StatusOr<Optimizer> Create(const proto::Optimizer& settings);

  // Names of the floats kept for each parameter besides its value, e.g. {"momentum"}, as
  // checkpoints call them. Their values before the first update are 0.
  const std::vector<std::string>& slots() const { return slots_; }

  // Writes the next version of `parameters` to `out` and updates `slots`, of which there are
  // slots().size(). All spans have one length; `out` may be `parameters` or `gradient_sum` itself.
  void Apply(const Update& update, absl::Span<const float> parameters,
             absl::Span<const float> gradient_sum, absl::Span<const absl::Span<float>> slots,
             absl::Span<float> out) const;

 private:
  explicit Optimizer(const SgdSettings& sgd);

  SgdSettings sgd_;  // a variant of settings, one alternative for each rule, when there are more
  std::vector<std::string> slots_;
};

}  // namespace rubato

#endif  // RUBATO_SERVER_OPTIMIZER_H_
