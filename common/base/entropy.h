// Random bits that cannot be reproduced, for unique names and keys. Training never uses them (see
// common/base/random.h).
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
