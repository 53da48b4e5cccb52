#include "common/sum_of_squares.h"

#include <algorithm>

#include "common/check.h"
#include "common/isa.h"

namespace rubato {
namespace {

constexpr int64_t kUnit = SumOfSquares::kUnit;
// Units that are summed at once: a node of level kLevel, if all of it is there.
constexpr int kLevel = 6;
constexpr int64_t kUnits = 1 << kLevel;

// The sum of squares of `units` units.
struct UnitSums {
  static RUBATO_ALWAYS_INLINE void Run(const float* __restrict values, int64_t units,
                                       double* __restrict sums) {
    for (int64_t u = 0; u < units; ++u, values += kUnit) {
      double squares[kUnit];
      for (int64_t l = 0; l < kUnit; ++l) {
        squares[l] = static_cast<double>(values[l]) * static_cast<double>(values[l]);
      }
      for (int64_t half = kUnit / 2; half > 0; half /= 2) {
        for (int64_t l = 0; l < half; ++l) squares[l] += squares[l + half];
      }
      sums[u] = squares[0];
    }
  }
};

}  // namespace

void SumOfSquares::Add(int64_t begin, absl::Span<const float> values) {
  RUBATO_CHECK(begin >= 0 && begin % kUnit == 0);
  int64_t unit = begin / kUnit;
  while (!values.empty()) {
    // Up to the end of a node of level kLevel.
    const int64_t wanted = kUnits - unit % kUnits;
    const int64_t whole = std::min(wanted, static_cast<int64_t>(values.size()) / kUnit);
    double sums[kUnits];
    Dispatch<UnitSums>(values.data(), whole, &sums[0]);
    values.remove_prefix(whole * kUnit);
    int64_t units = whole;
    if (units < wanted && !values.empty()) {  // the vector's last, a part
      float padded[kUnit] = {};
      std::copy(values.begin(), values.end(), padded);
      Dispatch<UnitSums>(&padded[0], int64_t{1}, &sums[units++]);
      values.remove_prefix(values.size());
    }
    if (units == kUnits) {
      for (int64_t count = kUnits / 2; count > 0; count /= 2) {
        for (int64_t i = 0; i < count; ++i) sums[i] = sums[2 * i] + sums[2 * i + 1];
      }
      Add({kLevel, unit / kUnits, sums[0]});
    } else {
      for (int64_t i = 0; i < units; ++i) Add({0, unit + i, sums[i]});
    }
    unit += units;
  }
}

void SumOfSquares::Merge(const SumOfSquares& other) {
  for (const Node& node : other.nodes()) Add(node);
}

void SumOfSquares::Add(const Node& node) {
  RUBATO_CHECK(node.level >= 0 && node.index >= 0);
  int level = node.level;
  int64_t index = node.index;
  double sum = node.sum;
  while (true) {
    const auto sibling = nodes_.find({level, index ^ 1});
    if (sibling == nodes_.end()) break;
    sum += sibling->second;  // of two numbers, so in either order the same
    nodes_.erase(sibling);
    ++level;
    index /= 2;
  }
  RUBATO_CHECK(nodes_.emplace(std::make_pair(level, index), sum).second);
}

std::vector<SumOfSquares::Node> SumOfSquares::nodes() const {
  std::vector<Node> nodes;
  for (const auto& [place, sum] : nodes_) nodes.push_back({place.first, place.second, sum});
  return nodes;
}

double SumOfSquares::Total() const {
  // A node without a sibling is its parent's sum, for the other half is 0.
  std::map<std::pair<int, int64_t>, double> open = nodes_;
  while (open.size() > 1) {
    const auto [place, sum] = *open.begin();  // the lowest
    open.erase(open.begin());
    const auto [parent, added] = open.try_emplace({place.first + 1, place.second / 2}, 0.0);
    (void)added;
    parent->second += sum;
  }
  return open.empty() ? 0 : open.begin()->second;
}

}  // namespace rubato
