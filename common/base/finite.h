// Finds values that are not finite (infinities and NaN), which must not get from a gradient or a
// loss into the parameters.
#ifndef RUBATO_COMMON_BASE_FINITE_H_
#define RUBATO_COMMON_BASE_FINITE_H_

#include <cstddef>

#include "absl/types/span.h"

namespace rubato {

// The index of the first value that is not finite; values.size() if all are.
size_t FirstNonFinite(absl::Span<const float> values);

// The same for unaligned values, such as those inside a received message: 4n bytes, little-endian.
size_t FirstNonFinite(const char* bytes, size_t n);

}  // namespace rubato

#endif  // RUBATO_COMMON_BASE_FINITE_H_
