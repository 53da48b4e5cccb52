// The exact paired sign-flip test (Fisher 1935, "The Design of Experiments", section 21), its
// inversion to an interval, and Holm's correction for several tests (Holm 1979).
//
// Of two treatments of the same seed only the difference is looked at. If the treatment does
// nothing, each difference is as likely to have the other sign: under all 2^n choices of signs the
// sum of the differences that were seen should not be an extreme one. Nothing is assumed of their
// distribution but that.
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

// All shifts of the differences that the test does not reject at level `alpha`: what the treatment
// may do. Its ends are means of subsets of the differences (Hartigan 1969, "Using subsample values
// as typical values"); infinite if there are too few for that level.
std::pair<double, double> SignFlipInterval(absl::Span<const double> differences, double alpha);

// The fewest pairs of which the test can reject anything at `alpha` divided by `tests`.
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
