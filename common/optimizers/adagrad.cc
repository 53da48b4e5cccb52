#include "common/optimizers/adagrad.h"

#include <algorithm>
#include <cmath>

#include "common/base/isa.h"
#include "common/base/kernels.h"
#include "common/base/status.h"

namespace rubato {
namespace {

// The numbers of one update.
struct Step {
  float scale;
  float weight_decay;
  float size;  // the decayed learning rate
  float eps;
};

struct AdagradKernel {
  static RUBATO_ALWAYS_INLINE void Run(Step step, const float* w, const float* sum,
                                       const float* s_before, float* s, float* out, size_t n) {
    RUBATO_ELEMENTWISE
    for (size_t i = 0; i < n; ++i) {
      const float g = step.scale * sum[i] + step.weight_decay * w[i];
      const float square = s_before[i] + g * g;
      s[i] = square;
      out[i] = w[i] - step.size * (g / (std::sqrt(square) + step.eps));
    }
  }
};

}  // namespace

absl::StatusOr<Adagrad> Adagrad::Create(const proto::Optimizer& settings) {
  RUBATO_RETURN_IF_ERROR(CheckSetting("lr_decay", settings.lr_decay(), 0));
  RUBATO_RETURN_IF_ERROR(
      CheckSetting("initial_accumulator_value", settings.initial_accumulator_value(), 0));
  RUBATO_RETURN_IF_ERROR(CheckSetting("eps", settings.eps(), 0));
  RUBATO_RETURN_IF_ERROR(CheckSetting("weight_decay", settings.weight_decay(), 0));
  Adagrad adagrad;
  adagrad.lr_decay = settings.lr_decay();
  adagrad.eps = settings.eps();
  adagrad.initial_accumulator_value = settings.initial_accumulator_value();
  adagrad.weight_decay = settings.weight_decay();
  return adagrad;
}

std::vector<std::string> Adagrad::SlotNames() const { return {"sum"}; }

void Adagrad::Apply(const OptimizerUpdate& update, const OptimizerSpans& spans) const {
  const float* before = spans.SlotBefore(0);
  if (update.count == 0) {
    std::fill(spans.slots[0].begin(), spans.slots[0].end(), initial_accumulator_value);
    before = spans.Slot(0);
  }
  const double size = update.learning_rate / (1 + static_cast<double>(update.count) * lr_decay);
  const Step step = {update.scale, weight_decay, static_cast<float>(size), static_cast<float>(eps)};
  Dispatch<AdagradKernel>(step, spans.parameters.data(), spans.gradient_sum.data(), before,
                          spans.Slot(0), spans.out.data(), spans.out.size());
}

}  // namespace rubato
