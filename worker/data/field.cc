#include "worker/data/field.h"

#include <cmath>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/charconv.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace rubato {
namespace {

template <typename Number>
bool Parse(absl::string_view text, Number* value) {
  text = absl::StripAsciiWhitespace(text);
  if (!text.empty() && text.front() == '+') {
    text.remove_prefix(1);
    if (!text.empty() && text.front() == '-') return false;
  }
  if (text.find_first_of("xX") != text.npos) return false;  // Abseil reads hexadecimals
  const char* end = text.data() + text.size();
  const absl::from_chars_result result = absl::from_chars(text.data(), end, *value);
  if (result.ptr != end || text.empty()) return false;
  // Too small is rounded to what is nearest, zero or a denormal; too large is no number.
  if (result.ec == std::errc::result_out_of_range) return std::abs(*value) < 1;
  return result.ec == std::errc() && std::isfinite(*value);
}

}  // namespace

bool ParseNumber(absl::string_view text, float* value) { return Parse(text, value); }
bool ParseNumber(absl::string_view text, double* value) { return Parse(text, value); }

absl::string_view WhyNoNumber(absl::string_view text) {
  const bool is_large = text.find_first_not_of("0123456789.eE+- ") == text.npos &&
                        text.find_first_of("123456789") != text.npos;
  double value;
  const absl::string_view bare = absl::StripAsciiWhitespace(text);
  return is_large && (ParseNumber(bare, &value) ||
                      absl::from_chars(bare.data(), bare.data() + bare.size(), value).ec ==
                          std::errc::result_out_of_range)
             ? " of at most 3.4e38, as a float32 holds"
             : "";
}

std::string Quoted(absl::string_view text) {
  constexpr size_t kLongest = 40;
  return absl::StrCat("\"", absl::Utf8SafeCHexEscape(text.substr(0, kLongest)),
                      text.size() > kLongest ? "...\"" : "\"");
}

}  // namespace rubato
