// RMSProp.
#ifndef RUBATO_COMMON_OPTIMIZERS_RMSPROP_H_
#define RUBATO_COMMON_OPTIMIZERS_RMSPROP_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/optimizers/rule.h"
#include "proto/job.pb.h"

namespace rubato {

// As torch.optim.RMSprop:
//
//   g   ← g + weight_decay · w
//   s   ← alpha · s + (1 − alpha) · g²
//   a   ← alpha · a + (1 − alpha) · g      with centered; else a = 0
//   d   = g / (√(s − a²) + eps)            s − a² at least 0, whatever rounding makes of it
//   b   ← momentum · b + d                 with momentum above 0; else b = d
//   out = w − learning_rate · b
//
// (Hinton, "Neural Networks for Machine Learning", lecture 6e, 2012; centered: Graves, "Generating
// Sequences With Recurrent Neural Networks", 2013.) It keeps s as "square_avg", b with momentum as
// "momentum_buffer" and a with centered as "grad_avg".
struct RmsProp {
  static absl::StatusOr<RmsProp> Create(const proto::Optimizer& settings);
  std::vector<std::string> SlotNames() const;
  void Apply(const OptimizerUpdate& update, const OptimizerSpans& spans) const;

  double alpha = 0;
  float eps = 0;
  float momentum = 0;
  float weight_decay = 0;
  bool centered = false;
};

}  // namespace rubato

#endif  // RUBATO_COMMON_OPTIMIZERS_RMSPROP_H_
