// The exact paired sign-flip test (Fisher 1935, "The Design of Experiments", section 21), its
// inversion to an interval, and Holm's correction for several tests (Holm 1979).
//
// Only the difference between two treatments with the same seed is used. If the treatment has no
// effect, each difference is equally likely to have the other sign: among all 2^n choices of signs,
// the observed sum of differences should not be extreme. There is no other assumption on the
// distribution.
#ifndef RUBATO_TOOLS_BENCH_CONVERGENCE_SIGN_FLIP_H_
#define RUBATO_TOOLS_BENCH_CONVERGENCE_SIGN_FLIP_H_

#include <utility>
#include <vector>

#include "absl/types/span.h"

namespace rubato {

// All choices of signs are visited: so many pairs at most.
constexpr int kMaxPairs = 20;

// The share of the choices of signs whose sum is at least as far from 0, two-sided; 1 without
// differences. At most kMaxPairs.
double SignFlipP(absl::Span<const double> differences);

// The confidence interval of the effect: all shifts of the differences that the test does not
// reject at level `alpha`. Its ends are means of subsets of the differences (Hartigan 1969, "Using
// subsample values as typical values"); infinite if there are too few for that level.
std::pair<double, double> SignFlipInterval(absl::Span<const double> differences, double alpha);

// The smallest number of pairs with which the test can reject at level `alpha` / `tests`.
int PairsNeeded(int tests, double alpha);

// What Holm's procedure makes of several tests at a common `alpha`, which bounds the probability
// that any true hypothesis is rejected.
struct HolmResult {
  bool rejected = false;
  double level = 0;  // at which this test was judged
};
std::vector<HolmResult> Holm(absl::Span<const double> p, double alpha);

}  // namespace rubato

#endif  // RUBATO_TOOLS_BENCH_CONVERGENCE_SIGN_FLIP_H_
