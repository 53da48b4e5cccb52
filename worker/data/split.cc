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

absl::Status CheckFraction(double fraction, absl::string_view what, int64_t size) {
  const int64_t wanted = FractionOf(size, fraction);
  if (wanted > 0 && wanted < size) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(what, ": found ", fraction, ", which is ", wanted,
                                                 " of ", size,
                                                 " examples, expected at least one and not all"));
}

namespace {

// Takes the rows that are `taken`, each of `size` values, out of `rows`.
template <typename Value>
std::vector<Value> TakeRows(const std::vector<bool>& taken, int64_t size,
                            std::vector<Value>* rows) {
  std::vector<Value> result;
  if (rows->empty()) return result;
  result.reserve(std::count(taken.begin(), taken.end(), true) * size);
  auto end = rows->begin();  // of those that stay
  for (size_t i = 0; i < taken.size(); ++i) {
    const auto row = rows->begin() + static_cast<int64_t>(i) * size;
    if (taken[i]) {
      result.insert(result.end(), row, row + size);
    } else {
      if (end != row) std::copy(row, row + size, end);
      end += size;
    }
  }
  rows->erase(end, rows->end());
  return result;
}

// Takes out those of them that are `taken`. What stays stays where it is: there need not be memory
// for it twice.
Examples Take(const std::vector<bool>& taken, Examples* examples) {
  Examples result;
  result.shape = examples->shape;
  result.classes = examples->classes;
  result.labels_each = examples->labels_each;
  result.pixels = TakeRows(taken, examples->shape.size(), &examples->pixels);
  result.features = TakeRows(taken, examples->shape.size(), &examples->features);
  result.labels = TakeRows(taken, examples->labels_each, &examples->labels);
  result.values = TakeRows(taken, 1, &examples->values);
  return result;
}

}  // namespace

absl::StatusOr<Examples> TakeFraction(double fraction, uint64_t key, absl::string_view what,
                                      Examples* examples) {
  const int64_t size = examples->size();
  RUBATO_RETURN_IF_ERROR(CheckFraction(fraction, what, size));
  const int64_t wanted = FractionOf(size, fraction);
  const Permutation order(key, static_cast<uint64_t>(size));
  std::vector<bool> taken(size);
  for (int64_t i = 0; i < wanted; ++i) taken[order(i)] = true;
  return Take(taken, examples);
}

absl::StatusOr<Examples> TakeEnd(double fraction, absl::string_view what, Examples* examples) {
  const int64_t size = examples->size();
  RUBATO_RETURN_IF_ERROR(CheckFraction(fraction, what, size));
  const int64_t wanted = FractionOf(size, fraction);
  std::vector<bool> taken(size);
  std::fill(taken.end() - wanted, taken.end(), true);
  return Take(taken, examples);
}

}  // namespace rubato
