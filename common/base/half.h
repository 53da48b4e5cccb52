// Conversions of half floats, for the wire and for devices: integer arithmetic without branches, so
// that loops over it vectorise at every level of the instruction set, with the same bits.
#ifndef RUBATO_COMMON_BASE_HALF_H_
#define RUBATO_COMMON_BASE_HALF_H_

#include <cstdint>
#include <cstring>

#include "common/base/host_device.h"

// Marks a function that GPUs use too. On the CPU it is compiled anew inside each kernel that calls
// it (see RUBATO_ALWAYS_INLINE in isa.h).
#ifdef __CUDACC__
#define RUBATO_HALF RUBATO_HOST_DEVICE
#else
#define RUBATO_HALF inline __attribute__((always_inline))
#endif

namespace rubato {

RUBATO_HALF uint32_t BitsOf(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

RUBATO_HALF float FloatOf(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

// A branch-free choice: both sides are always computed.
RUBATO_HALF uint32_t Select(bool condition, uint32_t yes, uint32_t no) {
  const uint32_t mask = -static_cast<uint32_t>(condition);
  return (yes & mask) | (no & ~mask);
}

// bfloat16, to nearest, ties to even; a NaN stays one.
RUBATO_HALF uint16_t ToBf16(float value) {
  const uint32_t bits = BitsOf(value);
  const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  const uint32_t nan = (bits >> 16) | 0x40;
  return static_cast<uint16_t>(Select((bits & 0x7fffffff) > 0x7f800000, nan, rounded));
}

RUBATO_HALF float FromBf16(uint16_t half) { return FloatOf(uint32_t{half} << 16); }

// IEEE binary16, to nearest, ties to even; beyond its range infinity; a NaN stays one.
RUBATO_HALF uint16_t ToFp16(float value) {
  const uint32_t bits = BitsOf(value);
  const uint32_t magnitude = bits & 0x7fffffff;
  // Above 2^-14: ten bits of the mantissa remain, and the exponent's bias goes from 127 to 15.
  const uint32_t normal =
      (magnitude + 0xfff + ((magnitude >> 13) & 1) - (uint32_t{112} << 23)) >> 13;
  // Below: multiples of 2^-24, which is the last place of floats at 1/2, so that the addition
  // rounds. The sum's low bits are the half float.
  const uint32_t subnormal = BitsOf(FloatOf(magnitude) + 0.5f) - BitsOf(0.5f);
  // From 65520 on, the middle between the largest half and 65536, which is even.
  uint32_t half = Select(magnitude < 0x38800000, subnormal, normal);
  half = Select(magnitude >= 0x477ff000, 0x7c00, half);
  half = Select(magnitude > 0x7f800000, 0x7e00, half);
  return static_cast<uint16_t>(half | ((bits >> 16) & 0x8000));
}

RUBATO_HALF float FromFp16(uint16_t half) {
  const uint32_t magnitude = half & 0x7fff;
  const uint32_t normal = (magnitude << 13) + (uint32_t{112} << 23);
  const uint32_t subnormal = BitsOf(static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24f);
  uint32_t bits = Select(magnitude < 0x400, subnormal, normal);
  bits = Select(magnitude >= 0x7c00, (magnitude << 13) | 0x7f800000, bits);
  return FloatOf(bits | (uint32_t{half} & 0x8000) << 16);
}

}  // namespace rubato

#undef RUBATO_HALF

#endif  // RUBATO_COMMON_BASE_HALF_H_
