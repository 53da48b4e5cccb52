#include "common/optimizers/sgd.h"

#include <type_traits>

#include "absl/strings/str_cat.h"
#include "common/base/isa.h"
#include "common/base/kernels.h"
#include "common/base/status.h"

namespace rubato {
namespace {

enum class Momentum { kNone, kFirst, kLater };

// The choices are template arguments so that each loop is free of branches.
template <bool weight_decay, Momentum momentum, bool nesterov>
struct SgdKernel {
  static RUBATO_ALWAYS_INLINE void Run(Sgd sgd, float learning_rate, float scale, const float* w,
                                       const float* sum, const float* m_before, float* m,
                                       float* out, size_t n) {
    const float undampened = 1 - sgd.dampening;
    RUBATO_ELEMENTWISE
    for (size_t i = 0; i < n; ++i) {
      float g = scale * sum[i];
      if constexpr (weight_decay) g = g + sgd.weight_decay * w[i];
      float d = g;
      if constexpr (momentum != Momentum::kNone) {
        if constexpr (momentum == Momentum::kLater) d = sgd.momentum * m_before[i] + undampened * g;
        m[i] = d;
        if constexpr (nesterov) d = g + sgd.momentum * d;
      }
      out[i] = w[i] - learning_rate * d;
    }
  }
};

}  // namespace

absl::StatusOr<Sgd> Sgd::Create(const proto::Optimizer& settings) {
  RUBATO_RETURN_IF_ERROR(CheckSetting("momentum", settings.momentum(), 0));
  RUBATO_RETURN_IF_ERROR(CheckSetting("weight_decay", settings.weight_decay(), 0));
  Sgd sgd;
  sgd.momentum = settings.momentum();
  sgd.dampening = settings.dampening();
  sgd.weight_decay = settings.weight_decay();
  sgd.nesterov = settings.nesterov();
  if (sgd.nesterov && (sgd.momentum == 0 || sgd.dampening != 0)) {
    return absl::InvalidArgumentError(absl::StrCat("optimizer.nesterov: found momentum ",
                                                   sgd.momentum, " and dampening ", sgd.dampening,
                                                   "; expected momentum above 0 and no dampening"));
  }
  return sgd;
}

std::vector<std::string> Sgd::SlotNames() const {
  if (momentum == 0) return {};
  return {"momentum_buffer"};
}

void Sgd::Apply(const OptimizerUpdate& update, const OptimizerSpans& spans) const {
  WithFlag(weight_decay != 0, [&](auto decays) {
    WithFlag(nesterov, [&](auto looks_ahead) {
      const auto run = [&](auto kind) {
        Dispatch<SgdKernel<decays, kind, looks_ahead>>(
            *this, update.learning_rate, update.scale, spans.parameters.data(),
            spans.gradient_sum.data(), spans.SlotBefore(0), spans.Slot(0), spans.out.data(),
            spans.out.size());
      };
      if (momentum == 0) {
        run(std::integral_constant<Momentum, Momentum::kNone>());
      } else if (update.count == 0) {
        run(std::integral_constant<Momentum, Momentum::kFirst>());
      } else {
        run(std::integral_constant<Momentum, Momentum::kLater>());
      }
    });
  });
}

}  // namespace rubato
