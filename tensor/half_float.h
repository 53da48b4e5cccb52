// The two half floats that GPUs compute products of. They are for memory: arithmetic is float32's.
#ifndef RUBATO_TENSOR_HALF_FLOAT_H_
#define RUBATO_TENSOR_HALF_FLOAT_H_

#include <cstdint>

#include "common/base/half.h"
#include "common/base/host_device.h"

namespace rubato {

// The upper half of a float32: 8 bits of exponent, 7 of mantissa. Conversion rounds to nearest,
// ties to even; a NaN stays one.
struct BFloat16 {
  BFloat16() = default;
  RUBATO_HOST_DEVICE explicit BFloat16(float value) : bits(ToBf16(value)) {}
  RUBATO_HOST_DEVICE explicit operator float() const { return FromBf16(bits); }

  uint16_t bits;
};

// IEEE binary16: 5 bits of exponent, 10 of mantissa. Rounding likewise; from 65520 on infinity.
struct Float16 {
  Float16() = default;
  RUBATO_HOST_DEVICE explicit Float16(float value) : bits(ToFp16(value)) {}
  RUBATO_HOST_DEVICE explicit operator float() const { return FromFp16(bits); }

  uint16_t bits;
};

}  // namespace rubato

#endif  // RUBATO_TENSOR_HALF_FLOAT_H_
