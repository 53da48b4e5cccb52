#include "common/space/permutation.h"

#include "common/base/check.h"
#include "common/base/random.h"

namespace rubato {
namespace {

// Half of the smallest even number of bits that holds [0, size).
int HalfBits(uint64_t size) {
  int bits = 0;
  while (bits < 64 && (uint64_t{1} << bits) < size) ++bits;
  return (bits + 1) / 2;
}

}  // namespace

Permutation::Permutation(uint64_t key, uint64_t size) : size_(size), half_bits_(HalfBits(size)) {
  for (int round = 0; round < kRounds; ++round) round_keys_[round] = Key(key, "feistel", round);
}

uint64_t Permutation::operator()(uint64_t index) const {
  RUBATO_CHECK(index < size_);
  do {
    index = Feistel(index);
  } while (index >= size_);
  return index;
}

uint64_t Permutation::Feistel(uint64_t value) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = value >> half_bits_;
  uint64_t right = value & mask;
  for (uint64_t round_key : round_keys_) {
    const uint64_t mixed = left ^ (Mix(round_key ^ right) & mask);
    left = right;
    right = mixed;
  }
  return left << half_bits_ | right;
}

uint64_t SampleAt(uint64_t seed, uint64_t epoch, uint64_t index, uint64_t size) {
  return Permutation(Key(seed, "order", epoch), size)(index);
}

}  // namespace rubato
