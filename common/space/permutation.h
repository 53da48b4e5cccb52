// A keyed permutation of [0, size) without an array: anyone can compute any position of a shuffled
// order in constant time, so the sample order of an epoch is not state that could be lost.
#ifndef RUBATO_COMMON_SPACE_PERMUTATION_H_
#define RUBATO_COMMON_SPACE_PERMUTATION_H_

#include <array>
#include <cstdint>

namespace rubato {

// A bijection of [0, size): a pure function of (key, size, index), the same on every machine.
//
// A balanced Feistel network over the next even number of bits; what falls outside [0, size) is
// sent through again until it lies inside ("cycle walking", Black & Rogaway 2002), fewer than four
// times on average. It shuffles well, but is not a secure cipher.
class Permutation {
 public:
  Permutation(uint64_t key, uint64_t size);

  // What stands at place `index` (< size).
  uint64_t operator()(uint64_t index) const;

  uint64_t size() const { return size_; }

 private:
  // Four rounds of random functions are enough for large halves (Luby & Rackoff 1988); ours are
  // as small as one bit, and more rounds are what makes small sizes even.
  static constexpr int kRounds = 8;

  uint64_t Feistel(uint64_t value) const;

  uint64_t size_;
  int half_bits_;
  std::array<uint64_t, kRounds> round_keys_;
};

// The sample that stands at place `index` of the order of `epoch`, among `size` samples.
uint64_t SampleAt(uint64_t seed, uint64_t epoch, uint64_t index, uint64_t size);

}  // namespace rubato

#endif  // RUBATO_COMMON_SPACE_PERMUTATION_H_
