#include "common/job/scalar.h"

#include <charconv>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/charconv.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace rubato {
namespace {

// `digits` may not begin with a zero that says nothing.
bool IsPlainDigits(absl::string_view digits) {
  if (digits.empty() || (digits.size() > 1 && digits[0] == '0')) return false;
  for (char c : digits) {
    if (!absl::ascii_isdigit(c)) return false;
  }
  return true;
}

struct UnitOf {
  absl::string_view name;
  double scale;
};

// Largest first.
constexpr UnitOf kDurations[] = {{"d", 86400}, {"h", 3600}, {"m", 60}, {"s", 1}};
constexpr UnitOf kSizes[] = {{"TiB", 0x1p40}, {"GiB", 0x1p30}, {"MiB", 0x1p20}, {"KiB", 0x1p10}};

// Splits "1.5h" into "1.5" and "h". (An exponent is part of the number: "1e3s".)
void SplitUnit(absl::string_view text, absl::string_view* number, absl::string_view* unit) {
  size_t end = text.size();
  while (end > 0 && absl::ascii_isalpha(text[end - 1])) --end;
  *number = absl::StripTrailingAsciiWhitespace(text.substr(0, end));
  *unit = text.substr(end);
}

}  // namespace

std::optional<int64_t> ParseInt(absl::string_view text) {
  const absl::string_view digits = !text.empty() && text[0] == '-' ? text.substr(1) : text;
  int64_t value;
  if (!IsPlainDigits(digits) || !absl::SimpleAtoi(text, &value)) return std::nullopt;
  return value;
}

std::optional<uint64_t> ParseUint(absl::string_view text) {
  uint64_t value;
  if (!IsPlainDigits(text) || !absl::SimpleAtoi(text, &value)) return std::nullopt;
  return value;
}

std::optional<double> ParseNumber(absl::string_view text) {
  // from_chars would also take hexadecimal, "inf" and "nan".
  if (text.find_first_not_of("0123456789.eE+-") != absl::string_view::npos) return std::nullopt;
  double value;
  const auto result = absl::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec != std::errc() || result.ptr != text.data() + text.size()) return std::nullopt;
  return value;
}

std::string FormatNumber(double value) {
  char buffer[32];
  const auto result = std::to_chars(buffer, buffer + sizeof(buffer), value);  // shortest exact
  return std::string(buffer, result.ptr);
}

std::optional<double> ParseDuration(absl::string_view text) {
  absl::string_view number, unit;
  SplitUnit(text, &number, &unit);
  const std::optional<double> value = ParseNumber(number);
  if (!value.has_value()) return std::nullopt;
  if (unit.empty()) return value;
  if (unit == "ms") return *value / 1000;
  for (const UnitOf& known : kDurations) {
    if (unit == known.name && std::isfinite(*value * known.scale)) return *value * known.scale;
  }
  return std::nullopt;
}

std::string FormatDuration(double seconds) {
  for (const UnitOf& unit : kDurations) {
    const double count = seconds / unit.scale;
    if (count >= 1 && count < 1e6 && count == std::floor(count) && count * unit.scale == seconds) {
      return absl::StrCat(FormatNumber(count), unit.name);
    }
  }
  const double milliseconds = std::round(seconds * 1000);
  if (milliseconds >= 1 && milliseconds < 1000 && milliseconds / 1000 == seconds) {
    return absl::StrCat(FormatNumber(milliseconds), "ms");
  }
  return absl::StrCat(FormatNumber(seconds), "s");
}

std::optional<int64_t> ParseSize(absl::string_view text) {
  absl::string_view number, unit;
  SplitUnit(text, &number, &unit);
  if (unit.empty() || unit == "B") return ParseInt(number);
  const std::optional<double> value = ParseNumber(number);
  for (const UnitOf& known : kSizes) {
    if (!value.has_value() || unit != known.name) continue;
    const double bytes = *value * known.scale;
    if (bytes != std::floor(bytes) || std::abs(bytes) > 0x1p62) return std::nullopt;
    return static_cast<int64_t>(bytes);
  }
  return std::nullopt;
}

std::string FormatSize(int64_t bytes) {
  for (const UnitOf& unit : kSizes) {
    const int64_t scale = static_cast<int64_t>(unit.scale);
    // Beyond 2^53 a double would lose the last bits on the way back.
    if (bytes >= scale && bytes % scale == 0 && bytes < (int64_t{1} << 53)) {
      return absl::StrCat(bytes / scale, unit.name);
    }
  }
  return absl::StrCat(bytes);
}

}  // namespace rubato
