#include "common/initialize.h"

#include <algorithm>

#include "common/random.h"

namespace rubato {

void InitializeRange(const proto::Parameter& parameter, uint64_t seed, int64_t begin,
                     absl::Span<float> out) {
  const float bound = static_cast<float>(parameter.init().uniform_bound());
  if (bound == 0) {
    std::fill(out.begin(), out.end(), static_cast<float>(parameter.init().constant()));
    return;
  }
  const uint64_t key = Key(seed, "parameter", parameter.name());
  std::array<uint32_t, 4> bits = {};
  for (size_t i = 0; i < out.size(); ++i) {
    const uint64_t index = begin + i;
    if (i == 0 || index % 4 == 0) bits = Philox(key, index / 4);
    // 2u − 1 is exact, so that the product is rounded once and stays below the bound.
    out[i] = (2 * UnitFloat(bits[index % 4]) - 1) * bound;
  }
}

}  // namespace rubato
