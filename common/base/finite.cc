#include "common/base/finite.h"

#include <algorithm>
#include <cstdint>

#include "common/base/isa.h"

namespace rubato {
namespace {

// Values tested together: what lies before the first bad one is read once, from the caches' point
// of view.
constexpr size_t kChunk = 1024;

// Of a float's bits: the top bit is set if the exponent is all ones, so not finite.
RUBATO_ALWAYS_INLINE uint32_t Flag(uint32_t bits) { return (bits & 0x7fffffffu) + 0x00800000u; }

// The i-th value's bits, at any address, which costs these processors nothing.
RUBATO_ALWAYS_INLINE uint32_t BitsAt(const char* bytes, size_t i) {
  uint32_t bits;
  __builtin_memcpy(&bits, bytes + sizeof bits * i, sizeof bits);
  return bits;
}

struct AnyNonFinite {
  static RUBATO_ALWAYS_INLINE bool Run(const char* bytes, size_t n) {
    uint32_t flags = 0;
    for (size_t i = 0; i < n; ++i) flags |= Flag(BitsAt(bytes, i));
    return flags >> 31 != 0;
  }
};

}  // namespace

size_t FirstNonFinite(const char* bytes, size_t n) {
  for (size_t begin = 0; begin < n; begin += kChunk) {
    const size_t size = std::min(kChunk, n - begin);
    if (!Dispatch<AnyNonFinite>(bytes + 4 * begin, size)) continue;
    for (size_t i = begin; i < begin + size; ++i) {
      if (Flag(BitsAt(bytes, i)) >> 31 != 0) return i;
    }
  }
  return n;
}

size_t FirstNonFinite(absl::Span<const float> values) {
  return FirstNonFinite(reinterpret_cast<const char*>(values.data()), values.size());
}

}  // namespace rubato
