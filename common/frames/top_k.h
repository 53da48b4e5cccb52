// The largest values of a span, for codec kTopK.
#ifndef RUBATO_COMMON_FRAMES_TOP_K_H_
#define RUBATO_COMMON_FRAMES_TOP_K_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace rubato {

// Writes the `k` values of largest magnitude to `out`, which has EncodedBound(kTopK, k) bytes, and
// sets `*sent` to their indices, ascending. Among equal magnitudes the first ones are chosen;
// infinities and NaN count as larger than all numbers. k is at most values.size(), which is below
// 2^32.
void EncodeTopK(absl::Span<const float> values, size_t k, char* out, std::vector<uint32_t>* sent);

// How many values of a span of `n` are sent at a density: n · density, rounded, at least one (none
// if n is 0). All `n`, as float32, once top-k would take as many bytes as float32.
size_t TopKCount(size_t n, double density);

}  // namespace rubato

#endif  // RUBATO_COMMON_FRAMES_TOP_K_H_
