// A borrowed run of floats with a share in whatever keeps it alive: a received message or a buffer.
#ifndef RUBATO_COMMON_WIRE_PAYLOAD_H_
#define RUBATO_COMMON_WIRE_PAYLOAD_H_

#include <cstdint>
#include <memory>

#include "absl/types/span.h"

namespace rubato {

struct Payload {
  std::shared_ptr<const void> owner;
  absl::Span<const float> values;
};

}  // namespace rubato

#endif  // RUBATO_COMMON_WIRE_PAYLOAD_H_
