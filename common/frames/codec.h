// How floats are encoded in a message: unchanged, or in fewer bytes with less precision.
// Pure functions of their arguments, with the same bytes and bits at every instruction set.
#ifndef RUBATO_COMMON_FRAMES_CODEC_H_
#define RUBATO_COMMON_FRAMES_CODEC_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace rubato {

// The numbers stand in frames.
enum class Codec : uint8_t {
  // 4 bytes a value: the bits themselves.
  kFloat32 = 0,
  // 2 bytes a value: bfloat16, the upper half of a float, rounded to nearest, ties to even.
  kBf16 = 1,
  // 4 bytes of scale, then 2 bytes a value: IEEE binary16 of value / scale, rounded to nearest,
  // ties to even. The scale is the power of two that puts the largest magnitude into [2^14, 2^15):
  // so a sum over many samples does not overflow, nor a small gradient vanish.
  kFp16 = 2,
  // 4 bytes of scale, then 1 byte a value: value / scale rounded to one of its two neighbours among
  // the integers -127…127, at random so that its expectation is the value (Gupta et al., "Deep
  // Learning with Limited Numerical Precision", ICML 2015). The scale is the largest magnitude
  // / 127.
  kInt8 = 3,
  // 4 bytes of count, then that many indices (4 bytes each, ascending), then as many values (4
  // bytes each): all others are 0. Which values go is the sender's choice (common/frames/top_k.h).
  kTopK = 4,
};

// "float32", "bf16", "fp16", "int8", "topk".
absl::string_view CodecName(Codec codec);
// False for a number that stands for no codec.
bool IsCodec(uint8_t number);

// The most bytes that `n` values take; exactly so many for all but kTopK.
size_t EncodedBound(Codec codec, size_t n);

// For all codecs but kTopK: the size of the scale that precedes the values, and the size of a
// value, in bytes.
size_t ScaleBytes(Codec codec);
size_t ValueBytes(Codec codec);

// Writes `values` to `out`, which has EncodedBound() bytes; kTopK is written by EncodeTopK. `key`
// is the random key of int8's rounding, where value i takes the i-th draw; the other codecs ignore
// it. Values that are not finite stay so, so that the server sees them: bf16 and fp16 keep each one
// (and then the scale of fp16 is 1); in int8 a single one turns all values into NaN.
void Encode(Codec codec, uint64_t key, absl::Span<const float> values, char* out);

// Decodes values from their bytes, which may be unaligned; `scale` has ScaleBytes(). Not for kTopK.
void DecodeValues(Codec codec, const char* scale, const char* bytes, absl::Span<float> out);

// Values in a message, checked.
class Encoded {
 public:
  // `bytes` hold `n` values. InvalidArgument if they cannot.
  static absl::StatusOr<Encoded> Create(Codec codec, absl::Span<const char> bytes, size_t n);

  Codec codec() const { return codec_; }
  size_t size() const { return n_; }

  // out[i] = value begin + i, for all of `out`. Any cut of the values gives the same bits.
  void Decode(size_t begin, absl::Span<float> out) const;

 private:
  Encoded(Codec codec, const char* bytes, size_t n) : codec_(codec), bytes_(bytes), n_(n) {}

  Codec codec_;
  const char* bytes_;
  size_t n_;
};

}  // namespace rubato

#endif  // RUBATO_COMMON_FRAMES_CODEC_H_
