// Numbers as people write them in YAML, and back. What Format writes, Parse reads to the same
// value, to the last bit.
#ifndef RUBATO_COMMON_JOB_SCALAR_H_
#define RUBATO_COMMON_JOB_SCALAR_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace rubato {

// A decimal integer: no sign but -, no leading zeros (010 is eight to one reader and ten to the
// next).
std::optional<int64_t> ParseInt(absl::string_view text);
std::optional<uint64_t> ParseUint(absl::string_view text);

// A finite decimal number: 3, -0.5, .5, 1e-3. Not what overflows, or underflows to zero.
std::optional<double> ParseNumber(absl::string_view text);
std::string FormatNumber(double value);

// Seconds: a number with ms, s, m, h or d, or without.
std::optional<double> ParseDuration(absl::string_view text);
std::string FormatDuration(double seconds);

// Whole bytes: a number with B, KiB, MiB, GiB or TiB, or without. Not KB, which means 1000 to some
// and 1024 to others.
std::optional<int64_t> ParseSize(absl::string_view text);
std::string FormatSize(int64_t bytes);

}  // namespace rubato

#endif  // RUBATO_COMMON_JOB_SCALAR_H_
