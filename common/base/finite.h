// Finds what is not finite: infinities and non-numbers, which a gradient or a loss must not bring
// into parameters.
#ifndef RUBATO_COMMON_BASE_FINITE_H_
#define RUBATO_COMMON_BASE_FINITE_H_

#include <cstddef>

#include "absl/types/span.h"

namespace rubato {

// The index of the first value that is not finite; values.size() if all are.
size_t FirstNonFinite(absl::Span<const float> values);

// The same of values that lie at any address, such as the inside of a received message: 4n bytes,
// little-endian.
size_t FirstNonFinite(const char* bytes, size_t n);

}  // namespace rubato

#endif  // RUBATO_COMMON_BASE_FINITE_H_
