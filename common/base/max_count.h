// The largest count (of samples, steps, updates, values, …) that is taken from a peer or a file.
#ifndef RUBATO_COMMON_BASE_MAX_COUNT_H_
#define RUBATO_COMMON_BASE_MAX_COUNT_H_

#include <cstddef>
#include <cstdint>

namespace rubato {

// A training that counts 10^15 samples, a million a second for thirty years, is below it. Sums of
// thousands of them fit into 64 bits.
constexpr int64_t kMaxCount = int64_t{1} << 50;

// A number from a file as a count, clamped to [0, kMaxCount].
constexpr int64_t ClampedCount(double number) {
  if (!(number > 0)) return 0;
  return number < static_cast<double>(kMaxCount) ? static_cast<int64_t>(number) : kMaxCount;
}

// Bytes that a process has moved in all: five GB a second for thirty years.
constexpr int64_t kMaxBytes = int64_t{1} << 62;

// Bytes of a proto::DataDescription: of 65,000 inputs, with a mean and a deviation each.
constexpr size_t kMaxDescription = 1 << 20;

}  // namespace rubato

#endif  // RUBATO_COMMON_BASE_MAX_COUNT_H_
