#include "common/pace/quantity.h"

#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"

namespace rubato {
namespace {

// A number and the unit behind it.
bool Split(absl::string_view text, double* number, absl::string_view* unit) {
  size_t digits = 0;
  while (digits < text.size() && (absl::ascii_isdigit(text[digits]) || text[digits] == '.')) {
    ++digits;
  }
  *unit = absl::StripAsciiWhitespace(text.substr(digits));
  return digits > 0 && absl::SimpleAtod(text.substr(0, digits), number);
}

}  // namespace

absl::StatusOr<int64_t> ParseTime(absl::string_view what, absl::string_view text) {
  constexpr std::pair<absl::string_view, double> kUnits[] = {
      {"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}, {"m", 60e9}, {"h", 3600e9}};
  double number = 0;
  absl::string_view unit;
  if (Split(text, &number, &unit)) {
    if (number == 0 && unit.empty()) return 0;
    for (const auto& [name, factor] : kUnits) {
      if (unit != name) continue;
      if (number * factor > static_cast<double>(kLongestNanos)) {
        return absl::InvalidArgumentError(
            absl::StrFormat("%s: found %s, expected not more than 10000h", what, text));
      }
      return static_cast<int64_t>(std::llround(number * factor));
    }
  }
  return absl::InvalidArgumentError(absl::StrFormat(
      "%s: found %s, expected a time with ns, us, ms, s, m or h, as 100us", what, text));
}

absl::StatusOr<double> ParseBandwidth(absl::string_view what, absl::string_view text) {
  constexpr std::pair<absl::string_view, double> kUnits[] = {{"kbit", 1e3 / 8}, {"Mbit", 1e6 / 8},
                                                             {"Gbit", 1e9 / 8}, {"kB", 1e3},
                                                             {"MB", 1e6},       {"GB", 1e9}};
  if (text == "unlimited") return std::numeric_limits<double>::infinity();
  double number = 0;
  absl::string_view unit;
  if (Split(text, &number, &unit) && number > 0) {
    for (const auto& [name, factor] : kUnits) {
      if (unit == name) return number * factor;
    }
  }
  return absl::InvalidArgumentError(
      absl::StrFormat("%s: found %s, expected kbit, Mbit, Gbit, kB, MB or GB (a second), as "
                      "10Gbit, or unlimited",
                      what, text));
}

}  // namespace rubato
