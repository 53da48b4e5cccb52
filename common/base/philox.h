// Philox 4x32-10: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011. For the
// CPU and for GPUs; random.h has the functions that draw numbers with it.
#ifndef RUBATO_COMMON_BASE_PHILOX_H_
#define RUBATO_COMMON_BASE_PHILOX_H_

#include <cstdint>

#include "common/base/host_device.h"

namespace rubato {
namespace philox {

constexpr int kRounds = 10;
// The increments of the two halves of the key from round to round.
constexpr uint32_t kWeyl0 = 0x9E3779B9u, kWeyl1 = 0xBB67AE85u;

RUBATO_HOST_DEVICE __attribute__((always_inline)) void Round(uint32_t k0, uint32_t k1, uint32_t& c0,
                                                             uint32_t& c1, uint32_t& c2,
                                                             uint32_t& c3) {
  const uint64_t p0 = uint64_t{0xD2511F53u} * c0;
  const uint64_t p1 = uint64_t{0xCD9E8D57u} * c2;
  c0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
  c1 = static_cast<uint32_t>(p1);
  c2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
  c3 = static_cast<uint32_t>(p0);
}

// Recursive, so that a loop over counters contains no inner loop and can be vectorised.
template <int rounds>
RUBATO_HOST_DEVICE __attribute__((always_inline)) void Rounds(uint32_t k0, uint32_t k1,
                                                              uint32_t* c) {
  if constexpr (rounds > 0) {
    Round(k0, k1, c[0], c[1], c[2], c[3]);
    Rounds<rounds - 1>(k0 + kWeyl0, k1 + kWeyl1, c);
  }
}

}  // namespace philox

// The counter-th four words under `key`.
RUBATO_HOST_DEVICE __attribute__((always_inline)) void DrawFour(uint64_t key, uint64_t counter,
                                                                uint32_t* words) {
  words[0] = static_cast<uint32_t>(counter);
  words[1] = static_cast<uint32_t>(counter >> 32);
  words[2] = words[3] = 0;
  philox::Rounds<philox::kRounds>(static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32),
                                  words);
}

}  // namespace rubato

#endif  // RUBATO_COMMON_BASE_PHILOX_H_
