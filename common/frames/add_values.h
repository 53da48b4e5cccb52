// Adds values while decoding them: decoded values stay in registers on the way to the sum.
#ifndef RUBATO_COMMON_FRAMES_ADD_VALUES_H_
#define RUBATO_COMMON_FRAMES_ADD_VALUES_H_

#include "absl/types/span.h"
#include "common/frames/codec.h"

namespace rubato {

// sum[i] += value i, for unaligned bytes. Only for float32 and bf16, which have no scale. Gives the
// same bits as DecodeValues followed by Add.
void AddValues(Codec codec, const char* bytes, absl::Span<float> sum);

}  // namespace rubato

#endif  // RUBATO_COMMON_FRAMES_ADD_VALUES_H_
