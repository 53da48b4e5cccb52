#include "common/space/initialize.h"

#include <algorithm>
#include <cmath>

#include "common/base/random.h"

namespace rubato {
namespace {

// The natural logarithm of x in (0, 1), within 1e-15 relative, by operations that have the same
// bits everywhere; the C library's differ. x = m 2^e with m about 1; log m = 2 atanh((m-1)/(m+1)).
double Log(double x) {
  int exponent;
  double m = std::frexp(x, &exponent);
  if (m < 0.70710678118654752) {
    m *= 2;
    --exponent;
  }
  const double z = (m - 1) / (m + 1), z2 = z * z;
  double sum = 0;
  for (int k = 21; k >= 1; k -= 2) sum = sum * z2 + 1.0 / k;
  return exponent * 0.69314718055994531 + 2 * z * sum;
}

// The x below which a normal variable stays with probability p, to 1.2e-9 relative: P. Acklam's
// rational functions.
double NormalQuantile(double p) {
  constexpr double kTail = 0.02425;
  const double near = std::min(p, 1 - p);
  if (near < kTail) {
    const double q = std::sqrt(-2 * Log(near));
    const double x =
        (((((-7.784894002430293e-03 * q - 3.223964580411365e-01) * q - 2.400758277161838e+00) * q -
           2.549732539343734e+00) *
              q +
          4.374664141464968e+00) *
             q +
         2.938163982698783e+00) /
        ((((7.784695709041462e-03 * q + 3.224671290700398e-01) * q + 2.445134137142996e+00) * q +
          3.754408661907416e+00) *
             q +
         1);
    return p < 0.5 ? x : -x;
  }
  const double q = p - 0.5, r = q * q;
  return (((((-3.969683028665376e+01 * r + 2.209460984245205e+02) * r - 2.759285104469687e+02) * r +
            1.383577518672690e+02) *
               r -
           3.066479806614716e+01) *
              r +
          2.506628277459239e+00) *
         q /
         (((((-5.447609879822406e+01 * r + 1.615858368580409e+02) * r - 1.556989798598866e+02) * r +
            6.680131188771972e+01) *
               r -
           1.328068155288572e+01) *
              r +
          1);
}

}  // namespace

void InitializeRange(const proto::Parameter& parameter, uint64_t seed, int64_t begin,
                     absl::Span<float> out) {
  const float bound = static_cast<float>(parameter.init().uniform_bound());
  const double deviation = parameter.init().normal_deviation();
  if (bound == 0 && deviation == 0) {
    std::fill(out.begin(), out.end(), static_cast<float>(parameter.init().constant()));
    return;
  }
  const uint64_t key = Key(seed, "parameter", parameter.name());
  std::array<uint32_t, 4> bits = {};
  for (size_t i = 0; i < out.size(); ++i) {
    const uint64_t index = begin + i;
    if (i == 0 || index % 4 == 0) bits = Philox(key, index / 4);
    if (deviation != 0) {
      const double u = (static_cast<double>(bits[index % 4]) + 0.5) * 0x1p-32;
      out[i] = static_cast<float>(NormalQuantile(u) * deviation);
      continue;
    }
    // 2u − 1 is exact, so that the product is rounded once and stays below the bound.
    out[i] = (2 * UnitFloat(bits[index % 4]) - 1) * bound;
  }
}

}  // namespace rubato
