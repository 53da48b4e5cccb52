// Arithmetic on symbols: 64 bits that stand for the floats of a block and encode how they were
// computed. Equal symbols mean equal expressions (but for a chance of 2^-64), so that a simulation
// without floats shows a contribution counted twice, one of the wrong version, or a sum in other
// brackets, as a difference of bits. It costs a few multiplications a block.
#ifndef RUBATO_TOOLS_SIMULATOR_SYMBOL_H_
#define RUBATO_TOOLS_SIMULATOR_SYMBOL_H_

#include <cstdint>
#include <cstring>

#include "common/base/random.h"

namespace rubato {

// A block before the first update.
inline uint64_t InitialSymbol(uint64_t seed, int64_t block) {
  return Key(seed, "initial", static_cast<uint64_t>(block));
}

// Likewise, of the values that worker `index` would give a job of a script.
inline uint64_t GivenSymbol(uint64_t seed, int index, int64_t block) {
  return Key(seed, "given", static_cast<uint64_t>(index), static_cast<uint64_t>(block));
}

// What a micro-batch of a script counts for, in place of its samples: of some, nothing.
inline int64_t WeightOf(uint64_t seed, int64_t epoch, int64_t begin, int64_t end) {
  return (end - begin) *
         static_cast<int64_t>(
             Key(seed, "weight", static_cast<uint64_t>(epoch), static_cast<uint64_t>(begin)) % 4);
}

// All blocks together: those before, and one more. A gradient depends on every parameter.
inline uint64_t AppendSymbol(uint64_t before, uint64_t block) { return Mix(before ^ Mix(block)); }

// The gradient of one block over the samples [begin, end) of an epoch, at `parameters`.
inline uint64_t LeafSymbol(uint64_t seed, int64_t epoch, int64_t begin, int64_t end, int64_t block,
                           uint64_t parameters) {
  const uint64_t place = Mix(static_cast<uint64_t>(epoch) << 48 ^
                             static_cast<uint64_t>(begin) << 24 ^ static_cast<uint64_t>(end)) +
                         static_cast<uint64_t>(block);
  return Mix(seed ^ place) ^ Mix(parameters + place);
}

// As float addition: commutative, not associative.
inline uint64_t SumSymbol(uint64_t a, uint64_t b) { return Mix((a + b) ^ Mix(a ^ b)); }

// What a test of parameters that have seen `unit` units shows: it falls.
inline double TestLoss(int64_t unit) { return 1 / (1 + static_cast<double>(unit)); }

// Likewise, what share of its predictions is correct: it goes up and down.
inline double TestAccuracy(uint64_t seed, int64_t unit) {
  return static_cast<double>(Key(seed, "accuracy", static_cast<uint64_t>(unit)) % 1000) / 1000;
}

// Whether floats in place of this gradient would be finite, in a job in which one of `one_in`
// gradients is not; 0: none.
inline bool IsFinite(uint64_t gradient, uint64_t one_in) {
  return one_in == 0 || gradient % one_in != 0;
}

// And their norm: small whole numbers, the sums of whose squares are exact.
inline float NormOf(uint64_t gradient) { return static_cast<float>(gradient >> 8 & 0xff); }

// What an update depends on besides the old version and the gradient.
struct UpdateTerms {
  int64_t samples = 0;
  int64_t samples_before = 0;
  int64_t updates_before = 0;
  double rate = 1;
  double factor = 1;
  int64_t weight = 0;
};

inline uint64_t UpdateSymbol(uint64_t old, uint64_t gradient, const UpdateTerms& terms) {
  uint64_t rate, factor;
  std::memcpy(&rate, &terms.rate, sizeof(rate));
  std::memcpy(&factor, &terms.factor, sizeof(factor));
  uint64_t settings =
      Key(static_cast<uint64_t>(terms.samples), static_cast<uint64_t>(terms.samples_before),
          static_cast<uint64_t>(terms.updates_before), rate, factor);
  if (terms.weight != terms.samples) settings ^= Mix(static_cast<uint64_t>(terms.weight));
  return Mix(Mix(old) ^ gradient) ^ settings;
}

}  // namespace rubato

#endif  // RUBATO_TOOLS_SIMULATOR_SYMBOL_H_
