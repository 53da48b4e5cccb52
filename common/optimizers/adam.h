// Adam and AdamW.
#ifndef RUBATO_COMMON_OPTIMIZERS_ADAM_H_
#define RUBATO_COMMON_OPTIMIZERS_ADAM_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/optimizers/rule.h"
#include "proto/job.pb.h"

namespace rubato {

// As torch.optim.Adam and torch.optim.AdamW, at these parameters' update number t, from 1:
//
//   g   ← g + weight_decay · w                     Adam
//   w   ← w − learning_rate · weight_decay · w     AdamW
//   m   ← β1 · m + (1 − β1) · g
//   v   ← β2 · v + (1 − β2) · g²
//   x   ← max(x, v)                                with amsgrad; else x = v
//   out = w − learning_rate / (1 − β1^t) · m / (√x / √(1 − β2^t) + eps)
//
// (Kingma and Ba, "Adam: A Method for Stochastic Optimization", ICLR 2015; Loshchilov and Hutter,
// "Decoupled Weight Decay Regularization", ICLR 2019; Reddi et al., "On the Convergence of Adam and
// Beyond", ICLR 2018.) It keeps m as "exp_avg", v as "exp_avg_sq" and x, with amsgrad, as
// "max_exp_avg_sq".
struct Adam {
  // `settings.name` says which of the two.
  static absl::StatusOr<Adam> Create(const proto::Optimizer& settings);
  std::vector<std::string> SlotNames() const;
  void Apply(const OptimizerUpdate& update, const OptimizerSpans& spans) const;

  double beta1 = 0;
  double beta2 = 0;
  double eps = 0;
  double weight_decay = 0;
  bool decoupled = false;  // AdamW
  bool amsgrad = false;
};

}  // namespace rubato

#endif  // RUBATO_COMMON_OPTIMIZERS_ADAM_H_
