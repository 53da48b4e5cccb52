// The largest count (of samples, steps, updates, values, …) that is taken from a peer or a file.
#ifndef RUBATO_COMMON_BASE_MAX_COUNT_H_
#define RUBATO_COMMON_BASE_MAX_COUNT_H_

#include <cstdint>

namespace rubato {

// No count of a job comes near: 2^48 samples of one float are a petabyte. Sums of them, and their
// products with what a job file may say, fit into 64 bits.
constexpr int64_t kMaxCount = int64_t{1} << 48;

}  // namespace rubato

#endif  // RUBATO_COMMON_BASE_MAX_COUNT_H_
