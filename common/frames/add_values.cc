#include "common/frames/add_values.h"

#include <cstdint>

#include "common/base/check.h"
#include "common/base/half.h"
#include "common/base/isa.h"
#include "common/base/kernels.h"

namespace rubato {
namespace {

struct __attribute__((packed, may_alias)) UnalignedHalf {
  uint16_t bits;
};

struct AddBf16 {
  static RUBATO_ALWAYS_INLINE void Run(const char* bytes, float* sum, size_t n) {
    const auto* halves = reinterpret_cast<const UnalignedHalf*>(bytes);
    RUBATO_ELEMENTWISE
    for (size_t i = 0; i < n; ++i) sum[i] = sum[i] + FromBf16(halves[i].bits);
  }
};

}  // namespace

void AddValues(Codec codec, const char* bytes, absl::Span<float> sum) {
  if (codec == Codec::kFloat32) {
    Add(sum.data(), bytes, sum.data(), sum.size());
  } else {
    RUBATO_CHECK(codec == Codec::kBf16);
    Dispatch<AddBf16>(bytes, sum.data(), sum.size());
  }
}

}  // namespace rubato
