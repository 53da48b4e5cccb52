// Adding values as they are decoded: what is decoded stays in registers on its way into the sum.
#ifndef RUBATO_COMMON_FRAMES_ADD_VALUES_H_
#define RUBATO_COMMON_FRAMES_ADD_VALUES_H_

#include "absl/types/span.h"
#include "common/frames/codec.h"

namespace rubato {

// sum[i] += value i, of values whose bytes lie anywhere. Of float32 and bf16, which have no scale;
// the bits are those of DecodeValues and Add.
void AddValues(Codec codec, const char* bytes, absl::Span<float> sum);

}  // namespace rubato

#endif  // RUBATO_COMMON_FRAMES_ADD_VALUES_H_
