// Bits that nobody can repeat, for names and keys that nobody else has; nothing of the training is
// drawn from them (common/base/random.h).
#ifndef RUBATO_COMMON_BASE_ENTROPY_H_
#define RUBATO_COMMON_BASE_ENTROPY_H_

#include <cstdint>
#include <random>

namespace rubato {

inline uint64_t DrawEntropy() {
  std::random_device random;
  return uint64_t{random()} << 32 | random();
}

}  // namespace rubato

#endif  // RUBATO_COMMON_BASE_ENTROPY_H_
