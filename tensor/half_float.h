// The two half floats that GPUs compute products of. They are for memory: arithmetic is float32's.
#ifndef RUBATO_TENSOR_HALF_FLOAT_H_
#define RUBATO_TENSOR_HALF_FLOAT_H_

#include <cstdint>

#include "common/base/half.h"
#include "common/base/host_device.h"

namespace rubato {
namespace half_internal {

// On a GPU an instruction each, to the same values; of what is no number the bits may differ.
#ifdef __CUDA_ARCH__
__device__ __forceinline__ uint16_t RoundedToBf16(float value) {
  uint16_t half;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(half) : "f"(value));
  return half;
}
__device__ __forceinline__ uint16_t RoundedToFp16(float value) {
  uint16_t half;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(value));
  return half;
}
__device__ __forceinline__ float OfFp16(uint16_t half) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half));
  return value;
}
#else
inline uint16_t RoundedToBf16(float value) { return ToBf16(value); }
inline uint16_t RoundedToFp16(float value) { return ToFp16(value); }
inline float OfFp16(uint16_t half) { return FromFp16(half); }
#endif

}  // namespace half_internal

// The upper half of a float32: 8 bits of exponent, 7 of mantissa. Conversion rounds to nearest,
// ties to even; a NaN stays one.
struct BFloat16 {
  BFloat16() = default;
  RUBATO_HOST_DEVICE explicit BFloat16(float value) : bits(half_internal::RoundedToBf16(value)) {}
  RUBATO_HOST_DEVICE explicit operator float() const { return FromBf16(bits); }

  uint16_t bits;
};

// IEEE binary16: 5 bits of exponent, 10 of mantissa. Rounding likewise; from 65520 on infinity.
struct Float16 {
  Float16() = default;
  RUBATO_HOST_DEVICE explicit Float16(float value) : bits(half_internal::RoundedToFp16(value)) {}
  RUBATO_HOST_DEVICE explicit operator float() const { return half_internal::OfFp16(bits); }

  uint16_t bits;
};

}  // namespace rubato

#endif  // RUBATO_TENSOR_HALF_FLOAT_H_
