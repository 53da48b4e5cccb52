// Stochastic gradient descent with momentum.
#ifndef RUBATO_COMMON_OPTIMIZERS_SGD_H_
#define RUBATO_COMMON_OPTIMIZERS_SGD_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/optimizers/rule.h"
#include "proto/job.pb.h"

namespace rubato {

// As torch.optim.SGD:
//
//   g   ← g + weight_decay · w
//   m   ← g                                      at the first update: undampened
//   m   ← momentum · m + (1 − dampening) · g     later
//   d   = g + momentum · m                       with nesterov
//   d   = m                                      without; g where momentum is 0
//   out = w − learning_rate · d
//
// (Sutskever et al., "On the importance of initialization and momentum in deep learning", ICML
// 2013, with PyTorch's placing of the learning rate.) Where momentum is above 0 it keeps m as
// "momentum_buffer", which the first update does not read.
struct Sgd {
  static absl::StatusOr<Sgd> Create(const proto::Optimizer& settings);
  std::vector<std::string> SlotNames() const;
  void Apply(const OptimizerUpdate& update, const OptimizerSpans& spans) const;

  float momentum = 0;
  float dampening = 0;
  float weight_decay = 0;
  bool nesterov = false;
};

}  // namespace rubato

#endif  // RUBATO_COMMON_OPTIMIZERS_SGD_H_
