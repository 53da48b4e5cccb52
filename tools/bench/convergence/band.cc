#include "tools/bench/convergence/band.h"

#include <algorithm>
#include <cmath>

#include "tools/bench/median.h"

namespace rubato {
namespace {

// `x` lies between the first and the last point.
double ValueAt(const Curve& curve, double x) {
  const auto next = std::lower_bound(curve.begin(), curve.end(), x,
                                     [](const auto& point, double at) { return point.first < at; });
  if (next == curve.begin() || next->first == x) return next->second;
  const auto before = std::prev(next);
  const double share = (x - before->first) / (next->first - before->first);
  return before->second + share * (next->second - before->second);
}

}  // namespace

Band BandOf(absl::Span<const Curve> runs) {
  std::vector<Curve> curves;
  std::vector<double> ends;
  double begin = 0;
  for (const Curve& run : runs) {
    Curve curve;
    for (const auto& point : run) {
      if (std::isfinite(point.first) && std::isfinite(point.second)) curve.push_back(point);
    }
    if (curve.empty()) continue;
    begin = std::max(begin, curve.front().first);
    ends.push_back(curve.back().first);
    curves.push_back(std::move(curve));
  }
  Band band;
  if (curves.empty()) return band;
  std::sort(ends.begin(), ends.end());
  const double end = ends[ends.size() / 2];
  for (int i = 0; i < kBandPoints && begin <= end; ++i) {
    // The last is not beyond the end by a rounding.
    const double x = i + 1 == kBandPoints ? end : begin + (end - begin) * i / (kBandPoints - 1);
    std::vector<double> values;
    for (const Curve& curve : curves) {
      if (x <= curve.back().first) values.push_back(ValueAt(curve, x));
    }
    const auto [low, high] = std::minmax_element(values.begin(), values.end());
    band.x.push_back(x);
    band.low.push_back(*low);
    band.middle.push_back(Median(values));
    band.high.push_back(*high);
  }
  return band;
}

}  // namespace rubato
