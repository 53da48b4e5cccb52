// Adagrad.
#ifndef RUBATO_COMMON_OPTIMIZERS_ADAGRAD_H_
#define RUBATO_COMMON_OPTIMIZERS_ADAGRAD_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/optimizers/rule.h"
#include "proto/job.pb.h"

namespace rubato {

// As torch.optim.Adagrad, at these parameters' update number t, from 1:
//
//   g   ← g + weight_decay · w
//   s   ← s + g²                with initial_accumulator_value for s before the first update
//   out = w − learning_rate / (1 + (t − 1) · lr_decay) · g / (√s + eps)
//
// (Duchi et al., "Adaptive Subgradient Methods for Online Learning and Stochastic Optimization",
// JMLR 2011.) It keeps s as "sum", which the first update does not read.
struct Adagrad {
  static absl::StatusOr<Adagrad> Create(const proto::Optimizer& settings);
  std::vector<std::string> SlotNames() const;
  void Apply(const OptimizerUpdate& update, const OptimizerSpans& spans) const;

  double lr_decay = 0;
  double eps = 0;
  float initial_accumulator_value = 0;
  float weight_decay = 0;
};

}  // namespace rubato

#endif  // RUBATO_COMMON_OPTIMIZERS_ADAGRAD_H_
