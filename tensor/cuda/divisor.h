// Division of indices by what a kernel is launched with. A GPU has no instruction for it, and what
// its compiler writes for 64 bits takes some 40 instructions and, in the worst case, a call.
#ifndef RUBATO_TENSOR_CUDA_DIVISOR_H_
#define RUBATO_TENSOR_CUDA_DIVISOR_H_

#include <cstdint>

#include "common/base/check.h"
#include "common/base/host_device.h"

namespace rubato {

// A positive number, as which it may be used, by which numbers from 0 to 2^63 - 1 are divided
// exactly: n / d is floor(m n / 2^(63 + l)) for m = ceil(2^(63 + l) / d) and l = ceil(log2 d)
// (Granlund & Montgomery, "Division by invariant integers using multiplication", 1994, theorem
// 4.2 for N = 63).
class Divisor {
 public:
  Divisor(int64_t divisor) : divisor_(divisor) {  // NOLINT: as a number
    RUBATO_CHECK(divisor > 0);
    while ((uint64_t{1} << shift_) < static_cast<uint64_t>(divisor)) ++shift_;
    const auto power = static_cast<unsigned __int128>(1) << (63 + shift_);
    multiplier_ = static_cast<uint64_t>((power - 1) / static_cast<uint64_t>(divisor) + 1);
  }

  RUBATO_HOST_DEVICE int64_t value() const { return divisor_; }
  RUBATO_HOST_DEVICE operator int64_t() const { return divisor_; }

  friend RUBATO_HOST_DEVICE int64_t operator/(int64_t n, const Divisor& d) {
    return static_cast<int64_t>(High(static_cast<uint64_t>(n) << 1, d.multiplier_) >> d.shift_);
  }
  friend RUBATO_HOST_DEVICE int64_t operator%(int64_t n, const Divisor& d) {
    return n - n / d * d.divisor_;
  }

 private:
  // The upper half of a product.
  static RUBATO_HOST_DEVICE uint64_t High(uint64_t a, uint64_t b) {
#ifdef __CUDA_ARCH__
    return __umul64hi(a, b);
#else
    return static_cast<uint64_t>(static_cast<unsigned __int128>(a) * b >> 64);
#endif
  }

  int64_t divisor_;
  uint64_t multiplier_;
  int shift_ = 0;
};

}  // namespace rubato

#endif  // RUBATO_TENSOR_CUDA_DIVISOR_H_
