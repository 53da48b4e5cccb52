#ifndef RUBATO_TENSOR_CUDA_RANDOM_H_
#define RUBATO_TENSOR_CUDA_RANDOM_H_

#include <cstdint>

#include "tensor/cuda/host_device.h"

namespace rubato {

// Philox of common/random.h: the counter-th four words under `key`.
RUBATO_HOST_DEVICE void DrawFour(uint64_t key, uint64_t counter, uint32_t* words) {
  uint32_t c0 = static_cast<uint32_t>(counter), c1 = static_cast<uint32_t>(counter >> 32), c2 = 0,
           c3 = 0;
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * c0;
    const uint64_t p1 = uint64_t{0xCD9E8D57u} * c2;
    c0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
    c1 = static_cast<uint32_t>(p1);
    c2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c3 = static_cast<uint32_t>(p0);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  words[0] = c0;
  words[1] = c1;
  words[2] = c2;
  words[3] = c3;
}

}  // namespace rubato

#endif  // RUBATO_TENSOR_CUDA_RANDOM_H_
