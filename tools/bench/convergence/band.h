// Curves of a mode's runs as one band. A core.
#ifndef RUBATO_TOOLS_BENCH_CONVERGENCE_BAND_H_
#define RUBATO_TOOLS_BENCH_CONVERGENCE_BAND_H_

#include <utility>
#include <vector>

#include "absl/types/span.h"

namespace rubato {

// (x, value) by rising x; one that is not finite is left out.
using Curve = std::vector<std::pair<double, double>>;

// At each x the least value of the runs, the median and the greatest.
struct Band {
  std::vector<double> x, low, middle, high;
};

constexpr int kBandPoints = 61;

// Equally spaced points, from the first x where all runs have a value to the last where half of
// them still have one. Values are interpolated linearly. Empty if there is no such x.
Band BandOf(absl::Span<const Curve> runs);

}  // namespace rubato

#endif  // RUBATO_TOOLS_BENCH_CONVERGENCE_BAND_H_
