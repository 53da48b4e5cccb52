#include "common/optimizers/rule.h"

#include <limits>

#include "absl/strings/str_cat.h"

namespace rubato {

double Power(double base, int64_t exponent) {
  double power = 1;
  for (; exponent > 0; exponent >>= 1) {
    if (exponent & 1) power *= base;
    base *= base;
  }
  return power;
}

absl::Status CheckSetting(absl::string_view key, double found, double at_least, double below) {
  if (found >= at_least && found < below) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("optimizer.", key, ": found ", found,
                                                 ", expected at least ", at_least, " and below ",
                                                 below));
}

absl::Status CheckSetting(absl::string_view key, double found, double at_least) {
  if (found >= at_least && found <= std::numeric_limits<float>::max()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("optimizer.", key, ": found ", found,
                                                 ", expected at least ", at_least, " and at most ",
                                                 std::numeric_limits<float>::max()));
}

}  // namespace rubato
