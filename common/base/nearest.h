// Suggests a correction for a mistyped word.
#ifndef RUBATO_COMMON_BASE_NEAREST_H_
#define RUBATO_COMMON_BASE_NEAREST_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace rubato {

// The candidate that `word` most likely stands for, by edit distance; empty if none is near enough
// to be meant. Case does not matter, and hyphens, underscores and spaces are equal. A prefix of a
// candidate matches it as well: "run" for "run-dir".
std::string NearestWord(absl::string_view word, const std::vector<std::string>& candidates);

}  // namespace rubato

#endif  // RUBATO_COMMON_BASE_NEAREST_H_
