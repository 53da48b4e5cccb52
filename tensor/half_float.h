// The two half floats that GPUs compute products of. They are for memory: arithmetic is float32's.
#ifndef RUBATO_TENSOR_HALF_FLOAT_H_
#define RUBATO_TENSOR_HALF_FLOAT_H_

#include <cstdint>
#include <cstring>

#include "common/base/host_device.h"

namespace rubato {
namespace half_float_internal {

RUBATO_HOST_DEVICE uint32_t Bits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

RUBATO_HOST_DEVICE float FromBits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

}  // namespace half_float_internal

// The upper half of a float32: 8 bits of exponent, 7 of mantissa. Conversion rounds to nearest,
// ties to even; a NaN stays one.
struct BFloat16 {
  BFloat16() = default;
  RUBATO_HOST_DEVICE explicit BFloat16(float value) {
    const uint32_t b = half_float_internal::Bits(value);
    const bool is_nan = (b & 0x7fffffffu) > 0x7f800000u;
    bits =
        static_cast<uint16_t>(is_nan ? (b >> 16) | 0x40u : (b + 0x7fffu + ((b >> 16) & 1u)) >> 16);
  }
  RUBATO_HOST_DEVICE explicit operator float() const {
    return half_float_internal::FromBits(static_cast<uint32_t>(bits) << 16);
  }

  uint16_t bits;
};

// IEEE binary16: 5 bits of exponent, 10 of mantissa. Rounding likewise; from 65520 on infinity.
struct Float16 {
  Float16() = default;
  RUBATO_HOST_DEVICE explicit Float16(float value) {
    using half_float_internal::Bits;
    using half_float_internal::FromBits;
    const uint32_t b = Bits(value), magnitude = b & 0x7fffffffu;
    uint32_t half;
    if (magnitude > 0x7f800000u) {
      half = 0x7e00u;
    } else if (magnitude >= 0x477ff000u) {
      half = 0x7c00u;
    } else if (magnitude >= 0x38800000u) {
      half = (magnitude + 0xfffu + ((magnitude >> 13) & 1u) - (112u << 23)) >> 13;
    } else {
      // Multiples of 2^-24, the last place of floats at 1/2: the addition rounds.
      half = Bits(FromBits(magnitude) + 0.5f) - Bits(0.5f);
    }
    bits = static_cast<uint16_t>(half | ((b >> 16) & 0x8000u));
  }
  RUBATO_HOST_DEVICE explicit operator float() const {
    using half_float_internal::Bits;
    const uint32_t magnitude = bits & 0x7fffu;
    uint32_t b;
    if (magnitude >= 0x7c00u) {
      b = (magnitude << 13) | 0x7f800000u;
    } else if (magnitude >= 0x400u) {
      b = (magnitude << 13) + (112u << 23);
    } else {
      b = Bits(static_cast<float>(magnitude) * 0x1p-24f);
    }
    return half_float_internal::FromBits(b | (static_cast<uint32_t>(bits & 0x8000u) << 16));
  }

  uint16_t bits;
};

}  // namespace rubato

#endif  // RUBATO_TENSOR_HALF_FLOAT_H_
