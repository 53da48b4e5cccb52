#include "worker/data/split.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/space/permutation.h"

namespace rubato {

int64_t FractionOf(int64_t size, double fraction) {
  return static_cast<int64_t>(std::floor(static_cast<double>(size) * fraction + 0.5));
}

namespace {

// The rows of `all`, each of `size` values, for which `taken` is `side`.
template <typename Value>
std::vector<Value> Rows(const std::vector<Value>& all, int64_t size, const std::vector<bool>& taken,
                        bool side) {
  std::vector<Value> rows;
  if (all.empty()) return rows;
  const int64_t count = std::count(taken.begin(), taken.end(), side);
  rows.reserve(count * size);
  for (size_t i = 0; i < taken.size(); ++i) {
    if (taken[i] != side) continue;
    rows.insert(rows.end(), all.begin() + i * size, all.begin() + (i + 1) * size);
  }
  return rows;
}

Examples Side(const Examples& all, const std::vector<bool>& taken, bool side) {
  Examples examples;
  examples.shape = all.shape;
  examples.classes = all.classes;
  examples.labels_each = all.labels_each;
  examples.pixels = Rows(all.pixels, all.shape.size(), taken, side);
  examples.features = Rows(all.features, all.shape.size(), taken, side);
  examples.labels = Rows(all.labels, all.labels_each, taken, side);
  examples.values = Rows(all.values, 1, taken, side);
  return examples;
}

// How many of them the fraction is.
absl::StatusOr<int64_t> Wanted(double fraction, absl::string_view what, int64_t size) {
  const int64_t wanted = FractionOf(size, fraction);
  if (wanted > 0 && wanted < size) return wanted;
  return absl::InvalidArgumentError(absl::StrCat(what, ": found ", fraction, ", which is ", wanted,
                                                 " of ", size,
                                                 " examples, expected at least one and not all"));
}

// Takes out those of them that are `taken`.
Examples Take(const std::vector<bool>& taken, Examples* examples) {
  Examples result = Side(*examples, taken, true);
  *examples = Side(*examples, taken, false);
  return result;
}

}  // namespace

absl::StatusOr<Examples> TakeFraction(double fraction, uint64_t key, absl::string_view what,
                                      Examples* examples) {
  const int64_t size = examples->size();
  RUBATO_ASSIGN_OR_RETURN(const int64_t wanted, Wanted(fraction, what, size));
  const Permutation order(key, static_cast<uint64_t>(size));
  std::vector<bool> taken(size);
  for (int64_t i = 0; i < wanted; ++i) taken[order(i)] = true;
  return Take(taken, examples);
}

absl::StatusOr<Examples> TakeEnd(double fraction, absl::string_view what, Examples* examples) {
  const int64_t size = examples->size();
  RUBATO_ASSIGN_OR_RETURN(const int64_t wanted, Wanted(fraction, what, size));
  std::vector<bool> taken(size);
  std::fill(taken.end() - wanted, taken.end(), true);
  return Take(taken, examples);
}

}  // namespace rubato
