// Times and bandwidths as people write them.
#ifndef RUBATO_COMMON_PACE_QUANTITY_H_
#define RUBATO_COMMON_PACE_QUANTITY_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace rubato {

// The longest time, 10,000 hours: a sum of a few of them still fits into 64 bits of nanoseconds.
constexpr int64_t kLongestNanos = int64_t{10000} * 3600 * 1'000'000'000;

// Nanoseconds: "100us", "2.5ms", "1s", "80ns", "3m", "1h", "0". InvalidArgument, which begins with
// `what`.
absl::StatusOr<int64_t> ParseTime(absl::string_view what, absl::string_view text);

// Bytes a second: "10Gbit", "800Mbit" (powers of ten, as networks are sold), "1.2GB", "500MB"
// (likewise), or "unlimited".
absl::StatusOr<double> ParseBandwidth(absl::string_view what, absl::string_view text);

}  // namespace rubato

#endif  // RUBATO_COMMON_PACE_QUANTITY_H_
