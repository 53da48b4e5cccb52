#include "common/optimizers/adam.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/base/isa.h"
#include "common/base/kernels.h"
#include "common/base/status.h"

namespace rubato {
namespace {

// The numbers of one update, computed once in double precision.
template <bool mostly_old1, bool mostly_old2>
struct Step {
  float scale;
  float coupled_decay;    // times the parameter, added to the gradient
  float decoupled_decay;  // times the parameter, added to the step
  MovingAverage<mostly_old1> first_moment;
  MovingAverage<mostly_old2> second_moment;
  float size;         // learning rate / (1 − β1^t)
  float root_factor;  // 1 / √(1 − β2^t)
  float eps;
};

template <bool amsgrad, typename Step>
struct AdamKernel {
  static RUBATO_ALWAYS_INLINE void Run(Step step, const float* w, const float* sum,
                                       const float* m_before, float* m, const float* v_before,
                                       float* v, const float* greatest_before, float* greatest,
                                       float* out, size_t n) {
    RUBATO_ELEMENTWISE
    for (size_t i = 0; i < n; ++i) {
      const float g = step.scale * sum[i] + step.coupled_decay * w[i];
      // Read again after a write they would be waited for: the arrays might overlap.
      const float mean = step.first_moment(m_before[i], g);
      const float variance = step.second_moment(v_before[i], g * g);
      m[i] = mean;
      v[i] = variance;
      float square = variance;
      if constexpr (amsgrad) {
        const float before = greatest_before[i];
        square = square < before ? before : square;
        greatest[i] = square;
      }
      const float d = mean / (std::sqrt(square) * step.root_factor + step.eps);
      // Together before the subtraction: 1 − learning_rate · weight_decay would lose most of both.
      out[i] = w[i] - (step.decoupled_decay * w[i] + step.size * d);
    }
  }
};

}  // namespace

absl::StatusOr<Adam> Adam::Create(const proto::Optimizer& settings) {
  if (settings.betas_size() != 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("optimizer.betas: found ", settings.betas_size(), " numbers, expected 2"));
  }
  RUBATO_RETURN_IF_ERROR(CheckSetting("betas[0]", settings.betas(0), 0, 1));
  RUBATO_RETURN_IF_ERROR(CheckSetting("betas[1]", settings.betas(1), 0, 1));
  RUBATO_RETURN_IF_ERROR(CheckSetting("eps", settings.eps(), 0));
  RUBATO_RETURN_IF_ERROR(CheckSetting("weight_decay", settings.weight_decay(), 0));
  Adam adam;
  adam.beta1 = settings.betas(0);
  adam.beta2 = settings.betas(1);
  adam.eps = settings.eps();
  adam.weight_decay = settings.weight_decay();
  adam.decoupled = settings.name() == proto::Optimizer::NAME_ADAMW;
  adam.amsgrad = settings.amsgrad();
  return adam;
}

std::vector<std::string> Adam::SlotNames() const {
  std::vector<std::string> names = {"exp_avg", "exp_avg_sq"};
  if (amsgrad) names.push_back("max_exp_avg_sq");
  return names;
}

void Adam::Apply(const OptimizerUpdate& update, const OptimizerSpans& spans) const {
  const int64_t t = update.count + 1;
  const double rate = update.learning_rate;
  const auto run = [&](auto with_amsgrad, auto mostly_old1, auto mostly_old2) {
    using Numbers = Step<mostly_old1.value, mostly_old2.value>;
    const Numbers step = {update.scale,
                          static_cast<float>(decoupled ? 0 : weight_decay),
                          static_cast<float>(decoupled ? rate * weight_decay : 0),
                          MovingAverage<mostly_old1.value>(beta1),
                          MovingAverage<mostly_old2.value>(beta2),
                          static_cast<float>(rate / (1 - Power(beta1, t))),
                          static_cast<float>(1 / std::sqrt(1 - Power(beta2, t))),
                          static_cast<float>(eps)};
    Dispatch<AdamKernel<with_amsgrad.value, Numbers>>(
        step, spans.parameters.data(), spans.gradient_sum.data(), spans.SlotBefore(0),
        spans.Slot(0), spans.SlotBefore(1), spans.Slot(1), spans.SlotBefore(2), spans.Slot(2),
        spans.out.data(), spans.out.size());
  };
  WithFlag(amsgrad, [&](auto a) {
    WithFlag(beta1 >= 0.5, [&](auto b) { WithFlag(beta2 >= 0.5, [&](auto c) { run(a, b, c); }); });
  });
}

}  // namespace rubato
