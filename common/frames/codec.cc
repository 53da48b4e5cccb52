#include "common/frames/codec.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "common/base/half.h"
#include "common/base/isa.h"
#include "common/base/kernels.h"
#include "common/base/philox.h"

namespace rubato {
namespace {

constexpr size_t kScaleBytes = sizeof(float);

// Numbers at any address, which costs these processors nothing.
template <typename T>
T Load(const char* at) {
  T value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

template <typename T>
void Store(T value, char* at) {
  std::memcpy(at, &value, sizeof(value));
}

struct __attribute__((packed, may_alias)) UnalignedHalf {
  uint16_t bits;
};

// The bits of the largest magnitude, which order as the magnitudes do: infinity and NaN are above
// all others.
struct LargestMagnitude {
  static RUBATO_ALWAYS_INLINE uint32_t Run(const float* values, size_t n) {
    uint32_t largest = 0;
    for (size_t i = 0; i < n; ++i) {
      const uint32_t magnitude = BitsOf(values[i]) & 0x7fffffff;
      largest = magnitude > largest ? magnitude : largest;
    }
    return largest;
  }
};

struct EncodeBf16 {
  static RUBATO_ALWAYS_INLINE void Run(const float* values, size_t n, char* out) {
    auto* halves = reinterpret_cast<UnalignedHalf*>(out);
    RUBATO_ELEMENTWISE
    for (size_t i = 0; i < n; ++i) halves[i].bits = ToBf16(values[i]);
  }
};

struct DecodeBf16 {
  static RUBATO_ALWAYS_INLINE void Run(const char* bytes, float* out, size_t n) {
    const auto* halves = reinterpret_cast<const UnalignedHalf*>(bytes);
    RUBATO_ELEMENTWISE
    for (size_t i = 0; i < n; ++i) out[i] = FromBf16(halves[i].bits);
  }
};

struct EncodeFp16 {
  static RUBATO_ALWAYS_INLINE void Run(float factor, const float* values, size_t n, char* out) {
    auto* halves = reinterpret_cast<UnalignedHalf*>(out);
    RUBATO_ELEMENTWISE
    for (size_t i = 0; i < n; ++i) halves[i].bits = ToFp16(values[i] * factor);
  }
};

struct DecodeFp16 {
  static RUBATO_ALWAYS_INLINE void Run(float scale, const char* bytes, float* out, size_t n) {
    const auto* halves = reinterpret_cast<const UnalignedHalf*>(bytes);
    RUBATO_ELEMENTWISE
    for (size_t i = 0; i < n; ++i) out[i] = FromFp16(halves[i].bits) * scale;
  }
};

// Draws of 16 bits for int8's rounding. Groups of 128 values take 16 counters of Philox, of four
// words each, in an order in which 16 lanes work side by side.
constexpr size_t kLanes = 16;
constexpr size_t kDraws = 8 * kLanes;

RUBATO_ALWAYS_INLINE void DrawGroup(uint64_t key, uint64_t group, float* draws) {
  RUBATO_ELEMENTWISE
  for (size_t lane = 0; lane < kLanes; ++lane) {
    uint32_t words[4];
    DrawFour(key, group * kLanes + lane, words);
    draws[lane] = static_cast<float>(static_cast<int32_t>(words[0] & 0xffff));
    draws[kLanes + lane] = static_cast<float>(static_cast<int32_t>(words[0] >> 16));
    draws[2 * kLanes + lane] = static_cast<float>(static_cast<int32_t>(words[1] & 0xffff));
    draws[3 * kLanes + lane] = static_cast<float>(static_cast<int32_t>(words[1] >> 16));
    draws[4 * kLanes + lane] = static_cast<float>(static_cast<int32_t>(words[2] & 0xffff));
    draws[5 * kLanes + lane] = static_cast<float>(static_cast<int32_t>(words[2] >> 16));
    draws[6 * kLanes + lane] = static_cast<float>(static_cast<int32_t>(words[3] & 0xffff));
    draws[7 * kLanes + lane] = static_cast<float>(static_cast<int32_t>(words[3] >> 16));
  }
}

// floor(value · factor + draw / 2^16). The sum is formed above 0, where the conversion to an
// integer is the floor, and has 16 bits behind the point.
RUBATO_ALWAYS_INLINE int8_t RoundAtRandom(float value, float factor, float draw) {
  const float shifted = value * factor + (128.0f + draw * 0x1p-16f);
  const int32_t rounded = static_cast<int32_t>(shifted) - 128;
  const int32_t above = rounded < -127 ? -127 : rounded;
  return static_cast<int8_t>(above > 127 ? 127 : above);
}

struct EncodeInt8 {
  static RUBATO_ALWAYS_INLINE void Run(uint64_t key, float factor, const float* values, size_t n,
                                       char* out) {
    float draws[kDraws];
    auto* bytes = reinterpret_cast<int8_t*>(out);
    size_t begin = 0;
    for (; begin + kDraws <= n; begin += kDraws) {
      DrawGroup(key, begin / kDraws, draws);
      RUBATO_ELEMENTWISE
      for (size_t i = 0; i < kDraws; ++i) {
        bytes[begin + i] = RoundAtRandom(values[begin + i], factor, draws[i]);
      }
    }
    if (begin == n) return;
    DrawGroup(key, begin / kDraws, draws);
    for (size_t i = begin; i < n; ++i)
      bytes[i] = RoundAtRandom(values[i], factor, draws[i - begin]);
  }
};

struct DecodeInt8 {
  static RUBATO_ALWAYS_INLINE void Run(float scale, const char* bytes, float* out, size_t n) {
    const auto* values = reinterpret_cast<const int8_t*>(bytes);
    RUBATO_ELEMENTWISE
    for (size_t i = 0; i < n; ++i) out[i] = static_cast<float>(values[i]) * scale;
  }
};

constexpr uint32_t kInfinityBits = 0x7f800000;

// 2^exponent; -126 … 127.
float PowerOfTwo(int exponent) { return FloatOf(static_cast<uint32_t>(exponent + 127) << 23); }

void EncodeScaledFp16(absl::Span<const float> values, char* out) {
  const uint32_t largest = Dispatch<LargestMagnitude>(values.data(), values.size());
  int exponent = 0;
  if (largest < kInfinityBits && largest >= 0x00800000) {
    // Not below -111, of which nothing but numbers below 2^-126 would have use, so that scale and
    // value / scale are whole floats.
    exponent = std::max(static_cast<int>(largest >> 23) - 127 - 14, -111);
  }
  Store(PowerOfTwo(exponent), out);
  Dispatch<EncodeFp16>(PowerOfTwo(-exponent), values.data(), values.size(), out + kScaleBytes);
}

void EncodeScaledInt8(uint64_t key, absl::Span<const float> values, char* out) {
  const uint32_t largest = Dispatch<LargestMagnitude>(values.data(), values.size());
  char* const bytes = out + kScaleBytes;
  if (largest >= kInfinityBits) {
    Store(std::numeric_limits<float>::quiet_NaN(), out);
    std::fill_n(bytes, values.size(), 0);
    return;
  }
  // Where all is below 2^-118, 127 / largest would be infinite: that is 0 to any optimizer.
  const float magnitude = largest < BitsOf(0x1p-118f) ? 0.0f : FloatOf(largest);
  Store(magnitude / 127, out);
  if (magnitude == 0) {
    std::fill_n(bytes, values.size(), 0);
    return;
  }
  Dispatch<EncodeInt8>(key, 127 / magnitude, values.data(), values.size(), bytes);
}

}  // namespace

absl::string_view CodecName(Codec codec) {
  switch (codec) {
    case Codec::kFloat32:
      return "float32";
    case Codec::kBf16:
      return "bf16";
    case Codec::kFp16:
      return "fp16";
    case Codec::kInt8:
      return "int8";
    case Codec::kTopK:
      return "topk";
  }
  return "unknown";
}

bool IsCodec(uint8_t number) { return number <= static_cast<uint8_t>(Codec::kTopK); }

size_t ScaleBytes(Codec codec) {
  return codec == Codec::kFp16 || codec == Codec::kInt8 ? kScaleBytes : 0;
}

size_t ValueBytes(Codec codec) {
  switch (codec) {
    case Codec::kFloat32:
      return sizeof(float);
    case Codec::kBf16:
    case Codec::kFp16:
      return sizeof(uint16_t);
    case Codec::kInt8:
      return sizeof(int8_t);
    case Codec::kTopK:
      break;
  }
  RUBATO_CHECK(codec != Codec::kTopK);
  return 0;
}

size_t EncodedBound(Codec codec, size_t n) {
  if (codec == Codec::kTopK) return sizeof(uint32_t) + n * (sizeof(uint32_t) + sizeof(float));
  return ScaleBytes(codec) + n * ValueBytes(codec);
}

void Encode(Codec codec, uint64_t key, absl::Span<const float> values, char* out) {
  switch (codec) {
    case Codec::kFloat32:
      std::copy_n(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float), out);
      return;
    case Codec::kBf16:
      Dispatch<EncodeBf16>(values.data(), values.size(), out);
      return;
    case Codec::kFp16:
      EncodeScaledFp16(values, out);
      return;
    case Codec::kInt8:
      EncodeScaledInt8(key, values, out);
      return;
    case Codec::kTopK:
      break;
  }
  RUBATO_CHECK(codec != Codec::kTopK);
}

absl::StatusOr<Encoded> Encoded::Create(Codec codec, absl::Span<const char> bytes, size_t n) {
  if (codec != Codec::kTopK) {
    if (bytes.size() != EncodedBound(codec, n)) {
      return absl::InvalidArgumentError(absl::StrFormat("%d bytes; %d values take %d in %s",
                                                        bytes.size(), n, EncodedBound(codec, n),
                                                        CodecName(codec)));
    }
    return Encoded(codec, bytes.data(), n);
  }
  if (bytes.size() < sizeof(uint32_t)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%d bytes; topk begins with a count of 4", bytes.size()));
  }
  const size_t count = Load<uint32_t>(bytes.data());
  if (count > n || bytes.size() != EncodedBound(codec, count)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%d bytes with %d of %d values in topk", bytes.size(), count, n));
  }
  const char* const indices = bytes.data() + sizeof(uint32_t);
  size_t lowest = 0;  // that the next index may be
  for (size_t i = 0; i < count; ++i) {
    const size_t index = Load<uint32_t>(indices + i * sizeof(uint32_t));
    if (index < lowest || index >= n) {
      return absl::InvalidArgumentError(
          absl::StrFormat("index %d in topk; from %d to %d were possible", index, lowest, n));
    }
    lowest = index + 1;
  }
  return Encoded(codec, bytes.data(), n);
}

void DecodeValues(Codec codec, const char* scale, const char* bytes, absl::Span<float> out) {
  switch (codec) {
    case Codec::kFloat32:
      std::memcpy(out.data(), bytes, out.size() * sizeof(float));
      return;
    case Codec::kBf16:
      Dispatch<DecodeBf16>(bytes, out.data(), out.size());
      return;
    case Codec::kFp16:
      Dispatch<DecodeFp16>(Load<float>(scale), bytes, out.data(), out.size());
      return;
    case Codec::kInt8:
      Dispatch<DecodeInt8>(Load<float>(scale), bytes, out.data(), out.size());
      return;
    case Codec::kTopK:
      break;
  }
  RUBATO_CHECK(codec != Codec::kTopK);
}

void Encoded::Decode(size_t begin, absl::Span<float> out) const {
  const size_t n = out.size();
  if (n == 0) return;
  if (codec_ != Codec::kTopK) {
    DecodeValues(codec_, bytes_, bytes_ + ScaleBytes(codec_) + begin * ValueBytes(codec_), out);
    return;
  }
  std::fill(out.begin(), out.end(), 0.0f);
  const uint32_t count = Load<uint32_t>(bytes_);
  const char* const indices = bytes_ + sizeof(uint32_t);
  const char* const values = indices + count * sizeof(uint32_t);
  const auto index = [&](size_t i) { return Load<uint32_t>(indices + i * sizeof(uint32_t)); };
  size_t low = 0, high = count;  // the first index from `begin` on
  while (low < high) {
    const size_t middle = (low + high) / 2;
    if (index(middle) < begin) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  for (size_t i = low; i < count && index(i) < begin + n; ++i) {
    out[index(i) - begin] = Load<float>(values + i * sizeof(float));
  }
}

}  // namespace rubato
