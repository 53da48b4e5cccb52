#include "common/frames/top_k.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>

#include "common/base/check.h"
#include "common/base/half.h"
#include "common/base/isa.h"
#include "common/frames/codec.h"

namespace rubato {
namespace {

RUBATO_ALWAYS_INLINE uint32_t Magnitude(float value) { return BitsOf(value) & 0x7fffffff; }

// The k-th largest magnitude, and how many of those equal to it are among the first k.
struct Threshold {
  uint32_t magnitude = 0;
  size_t ties = 0;
};

// First by the upper bits (exponent and three bits of the mantissa), which leaves few candidates to
// be ordered. 0 < k <= values.size().
Threshold Select(absl::Span<const float> values, size_t k) {
  constexpr int kShift = 20;
  std::array<size_t, 1 << (31 - kShift)> counts = {};
  for (float value : values) ++counts[Magnitude(value) >> kShift];
  size_t above = 0;
  size_t bucket = counts.size() - 1;
  while (above + counts[bucket] < k) above += counts[bucket--];
  std::vector<uint32_t> candidates;
  candidates.reserve(counts[bucket]);
  for (float value : values) {
    if (Magnitude(value) >> kShift == bucket) candidates.push_back(Magnitude(value));
  }
  const auto kth = candidates.begin() + static_cast<ptrdiff_t>(k - above - 1);
  std::nth_element(candidates.begin(), kth, candidates.end(), std::greater<>());
  Threshold threshold;
  threshold.magnitude = *kth;
  threshold.ties = 1 + std::count(candidates.begin(), kth, *kth);
  return threshold;
}

}  // namespace

void EncodeTopK(absl::Span<const float> values, size_t k, char* out, std::vector<uint32_t>* sent) {
  RUBATO_CHECK(k <= values.size());
  sent->clear();
  sent->reserve(k);
  if (k > 0) {
    Threshold threshold = Select(values, k);
    for (uint32_t i = 0; i < values.size(); ++i) {
      const uint32_t magnitude = Magnitude(values[i]);
      if (magnitude < threshold.magnitude) continue;
      if (magnitude == threshold.magnitude) {
        if (threshold.ties == 0) continue;
        --threshold.ties;
      }
      sent->push_back(i);
    }
  }
  RUBATO_CHECK(sent->size() == k);
  const uint32_t count = static_cast<uint32_t>(k);
  std::memcpy(out, &count, sizeof(count));
  out += sizeof(count);
  if (k == 0) return;
  std::memcpy(out, sent->data(), k * sizeof(uint32_t));
  out += k * sizeof(uint32_t);
  for (uint32_t i : *sent) {
    std::memcpy(out, &values[i], sizeof(float));
    out += sizeof(float);
  }
}

size_t TopKCount(size_t n, double density) {
  if (n == 0) return 0;
  const double count = std::round(static_cast<double>(n) * density);
  const size_t k = std::clamp<size_t>(static_cast<size_t>(count), 1, n);
  return EncodedBound(Codec::kTopK, k) < n * sizeof(float) ? k : n;
}

}  // namespace rubato
