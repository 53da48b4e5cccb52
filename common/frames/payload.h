// A borrowed block of values with a share in whatever keeps it alive: a received message or a
// buffer.
#ifndef RUBATO_COMMON_FRAMES_PAYLOAD_H_
#define RUBATO_COMMON_FRAMES_PAYLOAD_H_

#include <cstddef>
#include <memory>
#include <utility>

#include "absl/types/span.h"
#include "common/base/check.h"
#include "common/frames/codec.h"
#include "common/frames/frame.h"

namespace rubato {

struct Payload {
  Payload() = default;
  Payload(std::shared_ptr<const void> owner, absl::Span<const float> values)
      : owner(std::move(owner)),
        bytes(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)),
        size(values.size()) {}
  // `bytes` hold `size` values, and can (Encoded::Create).
  Payload(std::shared_ptr<const void> owner, Codec codec, absl::Span<const char> bytes, size_t size)
      : owner(std::move(owner)), codec(codec), bytes(bytes), size(size) {}

  // Of kFloat32 alone.
  absl::Span<const float> values() const {
    RUBATO_CHECK(codec == Codec::kFloat32);
    return {reinterpret_cast<const float*>(bytes.data()), size};
  }

  std::shared_ptr<const void> owner;
  Codec codec = Codec::kFloat32;
  absl::Span<const char> bytes;
  size_t size = 0;  // values
  // Whether its receiver may go on reading it where it lies, in an arena (shared_arena.h).
  bool may_lend = true;
};

// `frame` with what its header says of `payload`; as it is if there is none.
inline Frame HeaderOf(Frame frame, const Payload& payload) {
  frame.payload_bytes = static_cast<uint32_t>(payload.bytes.size());
  frame.values = static_cast<uint32_t>(payload.size);
  if (payload.size > 0) frame.codec = payload.codec;
  return frame;
}

}  // namespace rubato

#endif  // RUBATO_COMMON_FRAMES_PAYLOAD_H_
