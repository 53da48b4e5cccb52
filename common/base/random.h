// Random numbers as pure functions of (key, counter): no state, so that anyone can compute any
// value of a stream, in any order.
#ifndef RUBATO_COMMON_BASE_RANDOM_H_
#define RUBATO_COMMON_BASE_RANDOM_H_

#include <array>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "common/base/philox.h"

namespace rubato {

// Mixes 64 bits: SplitMix64's finaliser (Steele et al. 2014). A bijection.
inline uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// A key for a named purpose: Key(seed, "parameter", "0.weight"), Key(seed, "order", epoch).
inline uint64_t Key(uint64_t seed) { return Mix(seed); }
template <typename... Rest>
uint64_t Key(uint64_t seed, absl::string_view part, Rest... rest);
template <typename... Rest>
uint64_t Key(uint64_t seed, uint64_t part, Rest... rest) {
  return Key(Mix(seed) ^ part, rest...);
}
template <typename... Rest>
uint64_t Key(uint64_t seed, absl::string_view part, Rest... rest) {
  uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
  for (unsigned char c : part) hash = (hash ^ c) * 0x100000001b3u;
  return Key(Mix(seed) ^ hash, rest...);
}

// The counter-th block of four 32-bit words under `key`.
inline std::array<uint32_t, 4> Philox(uint64_t key, uint64_t counter) {
  std::array<uint32_t, 4> words;
  DrawFour(key, counter, words.data());
  return words;
}

// The index-th 32-bit word under `key`.
inline uint32_t RandomBits(uint64_t key, uint64_t index) {
  return Philox(key, index >> 2)[index & 3];
}

// Uniform in [0, 1), 24 bits: exact in a float.
inline float UnitFloat(uint32_t bits) { return static_cast<float>(bits >> 8) * 0x1p-24f; }

// A generator over one stream, for drawing values in turn. Cheap to make, cheap to copy.
class RandomStream {
 public:
  explicit RandomStream(uint64_t key) : key_(key) {}

  uint32_t Bits() { return RandomBits(key_, index_++); }
  float Unit() { return UnitFloat(Bits()); }                                    // [0, 1)
  float Uniform(float low, float high) { return low + (high - low) * Unit(); }  // [low, high)
  uint32_t Below(uint32_t n) {                                                  // [0, n)
    return static_cast<uint32_t>((uint64_t{Bits()} * n) >> 32);
  }

 private:
  uint64_t key_;
  uint64_t index_ = 0;
};

}  // namespace rubato

#endif  // RUBATO_COMMON_BASE_RANDOM_H_
