// Philox 4x32-10: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011. For the
// CPU and for GPUs; what draws by it stands in random.h.
#ifndef RUBATO_COMMON_BASE_PHILOX_H_
#define RUBATO_COMMON_BASE_PHILOX_H_

#include <cstdint>

#include "common/base/host_device.h"

namespace rubato {
namespace philox_internal {

// By recursion, so that no loop is left inside a loop over counters: that then works on several of
// them side by side.
template <int rounds>
RUBATO_HOST_DEVICE __attribute__((always_inline)) void Rounds(uint32_t k0, uint32_t k1,
                                                              uint32_t* c) {
  if constexpr (rounds > 0) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * c[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57u} * c[2];
    c[0] = static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k0;
    c[1] = static_cast<uint32_t>(p1);
    c[2] = static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k1;
    c[3] = static_cast<uint32_t>(p0);
    Rounds<rounds - 1>(k0 + 0x9E3779B9u, k1 + 0xBB67AE85u, c);
  }
}

}  // namespace philox_internal

// The counter-th four words under `key`.
RUBATO_HOST_DEVICE __attribute__((always_inline)) void DrawFour(uint64_t key, uint64_t counter,
                                                                uint32_t* words) {
  words[0] = static_cast<uint32_t>(counter);
  words[1] = static_cast<uint32_t>(counter >> 32);
  words[2] = words[3] = 0;
  philox_internal::Rounds<10>(static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32), words);
}

}  // namespace rubato

#endif  // RUBATO_COMMON_BASE_PHILOX_H_
