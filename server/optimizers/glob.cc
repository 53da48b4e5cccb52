#include "server/optimizers/glob.h"

namespace rubato {

namespace {

// How much of the pattern, from `p` on, stands for the character `c`; 0 where it does not.
size_t Match(absl::string_view pattern, size_t p, char c) {
  if (p == pattern.size()) return 0;
  if (pattern[p] == '\\') return p + 1 < pattern.size() && pattern[p + 1] == c ? 2 : 0;
  return pattern[p] == '?' || pattern[p] == c ? 1 : 0;
}

}  // namespace

bool MatchesGlob(absl::string_view pattern, absl::string_view text) {
  size_t p = 0, t = 0;
  // The last `*` met, and where the text that it stands for ends at present. An earlier `*` need
  // not be tried again: whatever it could give up, the last one can take.
  size_t star = absl::string_view::npos, star_end = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      star_end = t;
    } else if (const size_t length = Match(pattern, p, text[t]); length > 0) {
      p += length;
      ++t;
    } else if (star != absl::string_view::npos) {
      p = star + 1;
      t = ++star_end;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

}  // namespace rubato
