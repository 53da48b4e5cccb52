// The values of parameters before the first step.
#ifndef RUBATO_COMMON_SPACE_INITIALIZE_H_
#define RUBATO_COMMON_SPACE_INITIALIZE_H_

#include <cstdint>

#include "absl/types/span.h"
#include "proto/layout.pb.h"

namespace rubato {

// Fills `out` with the values [begin, begin + out.size()) of `parameter`, in row-major order, as
// parameter.init() says. They are a pure function of (seed, name, index): they do not depend on how
// ranges are cut or who computes them.
void InitializeRange(const proto::Parameter& parameter, uint64_t seed, int64_t begin,
                     absl::Span<float> out);

}  // namespace rubato

#endif  // RUBATO_COMMON_SPACE_INITIALIZE_H_
