#include "server/optimizer.h"

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/isa.h"
#include "common/kernels.h"

namespace rubato {
namespace {

enum class Momentum { kNone, kFirst, kLater };

// The choices are template arguments so that each loop is free of branches.
template <bool weight_decay, Momentum momentum, bool nesterov>
struct SgdKernel {
  static RUBATO_ALWAYS_INLINE void Run(SgdSettings settings, float learning_rate, float scale,
                                       const float* w, const float* sum, float* m, float* out,
                                       size_t n) {
    const float undampened = 1 - settings.dampening;
    RUBATO_ELEMENTWISE
    for (size_t i = 0; i < n; ++i) {
      float g = scale * sum[i];
      if constexpr (weight_decay) g = g + settings.weight_decay * w[i];
      float d = g;
      if constexpr (momentum != Momentum::kNone) {
        if constexpr (momentum == Momentum::kLater) d = settings.momentum * m[i] + undampened * g;
        m[i] = d;
        if constexpr (nesterov) d = g + settings.momentum * d;
      }
      out[i] = w[i] - learning_rate * d;
    }
  }
};

template <bool weight_decay, Momentum momentum, typename... Args>
void RunSgd(const SgdSettings& settings, Args... args) {
  if (settings.nesterov) {
    Dispatch<SgdKernel<weight_decay, momentum, true>>(settings, args...);
  } else {
    Dispatch<SgdKernel<weight_decay, momentum, false>>(settings, args...);
  }
}

template <bool weight_decay, typename... Args>
void RunSgd(const SgdSettings& settings, bool first, Args... args) {
  if (settings.momentum == 0) {
    RunSgd<weight_decay, Momentum::kNone>(settings, args...);
  } else if (first) {
    RunSgd<weight_decay, Momentum::kFirst>(settings, args...);
  } else {
    RunSgd<weight_decay, Momentum::kLater>(settings, args...);
  }
}

}  // namespace

void SgdUpdate(const SgdSettings& settings, float learning_rate, float scale, bool first,
               absl::Span<const float> parameters, absl::Span<const float> gradient_sum,
               absl::Span<float> momentum, absl::Span<float> out) {
  const size_t n = parameters.size();
  RUBATO_CHECK(gradient_sum.size() == n && out.size() == n);
  RUBATO_CHECK(momentum.size() == (settings.momentum == 0 ? 0 : n));
  if (settings.weight_decay == 0) {
    RunSgd<false>(settings, first, learning_rate, scale, parameters.data(), gradient_sum.data(),
                  momentum.data(), out.data(), n);
  } else {
    RunSgd<true>(settings, first, learning_rate, scale, parameters.data(), gradient_sum.data(),
                 momentum.data(), out.data(), n);
  }
}

Optimizer::Optimizer(const SgdSettings& sgd) : sgd_(sgd) {
  if (sgd_.momentum != 0) slots_.push_back("momentum");
}

absl::StatusOr<Optimizer> Optimizer::Create(const proto::Optimizer& settings) {
  if (settings.name() != proto::Optimizer::NAME_SGD) {
    return absl::InvalidArgumentError(
        absl::StrCat("optimizer.name: found number ", settings.name(), "; expected sgd"));
  }
  SgdSettings sgd;
  sgd.momentum = settings.momentum();
  sgd.dampening = settings.dampening();
  sgd.weight_decay = settings.weight_decay();
  sgd.nesterov = settings.nesterov();
  if (!(sgd.momentum >= 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("optimizer.momentum: found ", sgd.momentum, "; expected at least 0"));
  }
  if (!(sgd.weight_decay >= 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("optimizer.weight_decay: found ", sgd.weight_decay, "; expected at least 0"));
  }
  if (sgd.nesterov && (sgd.momentum == 0 || sgd.dampening != 0)) {
    return absl::InvalidArgumentError(absl::StrCat("optimizer.nesterov: found momentum ",
                                                   sgd.momentum, " and dampening ", sgd.dampening,
                                                   "; expected momentum above 0 and no dampening"));
  }
  return Optimizer(sgd);
}

void Optimizer::Apply(const Update& update, absl::Span<const float> parameters,
                      absl::Span<const float> gradient_sum,
                      absl::Span<const absl::Span<float>> slots, absl::Span<float> out) const {
  RUBATO_CHECK(slots.size() == slots_.size());
  SgdUpdate(sgd_, update.learning_rate, update.scale, update.count == 0, parameters, gradient_sum,
            slots.empty() ? absl::Span<float>() : slots[0], out);
}

}  // namespace rubato
