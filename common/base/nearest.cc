#include "common/base/nearest.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"

namespace rubato {
namespace {

std::string Normal(absl::string_view word) {
  return absl::StrReplaceAll(absl::AsciiStrToLower(word), {{"_", "-"}, {" ", "-"}});
}

// Letters to insert, delete, replace or swap with their neighbour, to make `a` of `b` (optimal
// string alignment).
size_t EditDistance(absl::string_view a, absl::string_view b) {
  // table[i][j]: of the first i letters of a and the first j of b.
  std::vector<std::vector<size_t>> table(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        table[i][j] = i + j;
        continue;
      }
      table[i][j] = std::min(
          {table[i - 1][j] + 1, table[i][j - 1] + 1, table[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        table[i][j] = std::min(table[i][j], table[i - 2][j - 2] + 1);
      }
    }
  }
  return table.back().back();
}

}  // namespace

std::string NearestWord(absl::string_view word, const std::vector<std::string>& candidates) {
  constexpr size_t kLongest = 64;  // nothing longer is a slip of the fingers
  if (word.size() > kLongest) return "";
  const std::string typed = Normal(word);
  std::string nearest;
  size_t least = std::max<size_t>(1, typed.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    const std::string known = Normal(candidate);
    // A wrong letter among three makes another word: gpu is not meant to be cpu, but mpl mlp.
    if (typed.size() < 4 && typed.size() == known.size() &&
        !std::is_permutation(typed.begin(), typed.end(), known.begin())) {
      continue;
    }
    const bool begins = typed.size() >= 2 && absl::StartsWith(known, typed);
    const size_t distance =
        begins ? std::min<size_t>(1, known.size() - typed.size()) : EditDistance(typed, known);
    if (distance < least) {
      least = distance;
      nearest = candidate;
    }
  }
  return nearest;
}

}  // namespace rubato
