#include "common/optimizers/rmsprop.h"

#include <cmath>

#include "common/base/isa.h"
#include "common/base/kernels.h"
#include "common/base/status.h"

namespace rubato {
namespace {

template <bool has_momentum, bool centered, bool mostly_old>
struct RmsPropKernel {
  static RUBATO_ALWAYS_INLINE void Run(RmsProp rule, float learning_rate, float scale,
                                       const float* w, const float* sum, const float* s_before,
                                       float* s, const float* b_before, float* b,
                                       const float* a_before, float* a, float* out, size_t n) {
    const MovingAverage<mostly_old> average(rule.alpha);
    RUBATO_ELEMENTWISE
    for (size_t i = 0; i < n; ++i) {
      const float g = scale * sum[i] + rule.weight_decay * w[i];
      float square = average(s_before[i], g * g);
      s[i] = square;
      if constexpr (centered) {
        const float mean = average(a_before[i], g);
        a[i] = mean;
        square = square - mean * mean;
        square = square < 0 ? 0 : square;  // a steady gradient leaves nothing but rounding
      }
      float d = g / (std::sqrt(square) + rule.eps);
      if constexpr (has_momentum) {
        d = rule.momentum * b_before[i] + d;
        b[i] = d;
      }
      out[i] = w[i] - learning_rate * d;
    }
  }
};

}  // namespace

absl::StatusOr<RmsProp> RmsProp::Create(const proto::Optimizer& settings) {
  RUBATO_RETURN_IF_ERROR(CheckSetting("alpha", settings.alpha(), 0, 1));
  RUBATO_RETURN_IF_ERROR(CheckSetting("eps", settings.eps(), 0));
  RUBATO_RETURN_IF_ERROR(CheckSetting("momentum", settings.momentum(), 0));
  RUBATO_RETURN_IF_ERROR(CheckSetting("weight_decay", settings.weight_decay(), 0));
  RmsProp rule;
  rule.alpha = settings.alpha();
  rule.eps = settings.eps();
  rule.momentum = settings.momentum();
  rule.weight_decay = settings.weight_decay();
  rule.centered = settings.centered();
  return rule;
}

std::vector<std::string> RmsProp::SlotNames() const {
  std::vector<std::string> names = {"square_avg"};
  if (momentum != 0) names.push_back("momentum_buffer");
  if (centered) names.push_back("grad_avg");
  return names;
}

void RmsProp::Apply(const OptimizerUpdate& update, const OptimizerSpans& spans) const {
  constexpr size_t kNone = ~size_t{0};
  const size_t buffer = momentum != 0 ? 1 : kNone;
  const size_t average = centered ? (momentum != 0 ? 2 : 1) : kNone;
  const auto run = [&](auto has_momentum, auto is_centered, auto mostly_old) {
    Dispatch<RmsPropKernel<has_momentum.value, is_centered.value, mostly_old.value>>(
        *this, update.learning_rate, update.scale, spans.parameters.data(),
        spans.gradient_sum.data(), spans.SlotBefore(0), spans.Slot(0), spans.SlotBefore(buffer),
        spans.Slot(buffer), spans.SlotBefore(average), spans.Slot(average), spans.out.data(),
        spans.out.size());
  };
  WithFlag(momentum != 0, [&](auto a) {
    WithFlag(centered, [&](auto b) { WithFlag(alpha >= 0.5, [&](auto c) { run(a, b, c); }); });
  });
}

}  // namespace rubato
