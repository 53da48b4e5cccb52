#include "tools/bench/convergence/sign_flip.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>

#include "common/base/check.h"

namespace rubato {
namespace {

// The sum and the size of each subset, the empty one first. Neighbours in Gray's code differ by one
// element, but sums that are added up anew have no drift: each is its parent's and one more.
struct Subsets {
  std::vector<double> sums;
  std::vector<int> sizes;

  explicit Subsets(absl::Span<const double> values) : sums{0}, sizes{0} {
    RUBATO_CHECK(values.size() <= kMaxPairs);
    for (const double value : values) {
      const size_t before = sums.size();
      for (size_t i = 0; i < before; ++i) {
        sums.push_back(sums[i] + value);
        sizes.push_back(sizes[i] + 1);
      }
    }
  }
};

}  // namespace

double SignFlipP(absl::Span<const double> differences) {
  if (differences.empty()) return 1;
  const Subsets flipped(differences);
  double total = 0, scale = 0;
  for (const double difference : differences) {
    total += difference;
    scale += std::abs(difference);
  }
  // With the signs of a subset changed the sum is total - 2 * its sum. What is equal but for
  // rounding counts as equal, which is the cautious side.
  const double seen = std::abs(total) - 1e-12 * scale;
  int64_t as_far = 0;
  for (const double sum : flipped.sums) {
    if (std::abs(total - 2 * sum) >= seen) ++as_far;
  }
  return static_cast<double>(as_far) / static_cast<double>(flipped.sums.size());
}

std::pair<double, double> SignFlipInterval(absl::Span<const double> differences, double alpha) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (differences.empty()) return {-kInfinity, kInfinity};
  const Subsets subsets(differences);
  std::vector<double> means;
  means.reserve(subsets.sums.size() - 1);
  for (size_t i = 1; i < subsets.sums.size(); ++i) {
    means.push_back(subsets.sums[i] / subsets.sizes[i]);
  }
  // The true shift lies in each of the 2^n gaps between them with equal probability.
  const auto outside =
      static_cast<size_t>(alpha / 2 * static_cast<double>(subsets.sums.size()) + 1e-9);
  if (outside == 0) return {-kInfinity, kInfinity};
  const auto kth = [&](size_t k) {
    std::nth_element(means.begin(), means.begin() + static_cast<int64_t>(k), means.end());
    return means[k];
  };
  const double low = kth(outside - 1);
  return {low, kth(means.size() - outside)};
}

int PairsNeeded(int tests, double alpha) {
  int pairs = 1;
  while (2 / std::pow(2, pairs) > alpha / tests) ++pairs;
  return pairs;
}

std::vector<HolmResult> Holm(absl::Span<const double> p, double alpha) {
  std::vector<size_t> order(p.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return p[a] < p[b]; });
  std::vector<HolmResult> results(p.size());
  bool rejects = true;
  double level = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    // Behind the first that is not rejected none is.
    if (rejects) level = alpha / static_cast<double>(order.size() - i);
    rejects = rejects && p[order[i]] <= level;
    results[order[i]] = {rejects, level};
  }
  return results;
}

}  // namespace rubato
