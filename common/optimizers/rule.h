// What the update rules share: the floats of an update, moving averages, checks of settings.
//
// A rule is a plain struct of settings with
//
//   static absl::StatusOr<Rule> Create(const proto::Optimizer& settings);  // or InvalidArgument
//   std::vector<std::string> SlotNames() const;
//   void Apply(const OptimizerUpdate& update, const OptimizerSpans& spans) const;
//
// Formulas and names are those of torch.optim in PyTorch 1.13 (its _single_tensor_* functions),
// with g = scale · gradient_sum. Every element goes its own way through exact IEEE operations, so
// the bits do not depend on the cut of a span or on the instruction set.
#ifndef RUBATO_COMMON_OPTIMIZERS_RULE_H_
#define RUBATO_COMMON_OPTIMIZERS_RULE_H_

#include <cstdint>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/isa.h"

namespace rubato {

// What differs from update to update.
struct OptimizerUpdate {
  float learning_rate = 0;  // at this point of the job, of this contribution
  float scale = 1;          // 1 / weight of the sum: the gradient is gradient_sum · scale
  int64_t count = 0;        // updates that these parameters have had before this one
};

// The floats of an update, all spans of one length. `out` may be `parameters` or `gradient_sum`
// itself; otherwise no two spans may overlap.
struct OptimizerSpans {
  absl::Span<const float> parameters;
  absl::Span<const float> gradient_sum;
  absl::Span<const absl::Span<float>> slots;  // in the order of SlotNames()
  absl::Span<float> out;
  // Of a slot that is not updated in place: where it is read. One each, or none at all; a null
  // pointer: in place.
  absl::Span<const float* const> slots_before = {};

  // The data of slot `index`, to be written; null if the rule keeps fewer.
  float* Slot(size_t index) const { return index < slots.size() ? slots[index].data() : nullptr; }
  // The same, as it was before.
  const float* SlotBefore(size_t index) const {
    const float* const before = index < slots_before.size() ? slots_before[index] : nullptr;
    return before != nullptr ? before : Slot(index);
  }
};

// average ← decay · average + (1 − decay) · value, in the form that loses least: the smaller of the
// two factors multiplies the difference. Neither 0.999 nor 0.001 is a float; as two factors they
// would not add up to 1, and an average over 1000 updates would be off by 1e-5. Which of the two it
// is, is part of the type: in a loop the choice costs half of the speed.
template <bool mostly_old>  // decay >= 0.5
class MovingAverage {
 public:
  explicit MovingAverage(double decay)
      : factor_(static_cast<float>(mostly_old ? 1 - decay : decay)) {}

  RUBATO_ALWAYS_INLINE float operator()(float average, float value) const {
    return mostly_old ? average + factor_ * (value - average) : value + factor_ * (average - value);
  }

 private:
  float factor_;
};

// Calls `run` with std::true_type if `flag`, else with std::false_type: a setting as a type.
template <typename Run>
void WithFlag(bool flag, const Run& run) {
  if (flag) {
    run(std::true_type());
  } else {
    run(std::false_type());
  }
}

// base^exponent by multiplications alone: equal bits on every machine, which std::pow does not
// promise. To within exponent · 2^-53; exponent at least 0.
double Power(double base, int64_t exponent);

// OK if at_least <= found < below; else, also for NaN, InvalidArgument that names optimizer.`key`.
absl::Status CheckSetting(absl::string_view key, double found, double at_least, double below);
// OK if found >= at_least and finite in float32; else likewise.
absl::Status CheckSetting(absl::string_view key, double found, double at_least);

}  // namespace rubato

#endif  // RUBATO_COMMON_OPTIMIZERS_RULE_H_
