// Frames as gRPC messages: the header in one slice, the values by reference in another.
#ifndef RUBATO_COMMON_WIRE_MESSAGE_H_
#define RUBATO_COMMON_WIRE_MESSAGE_H_

#include <grpcpp/support/byte_buffer.h>

#include "absl/status/statusor.h"
#include "common/wire/frame.h"
#include "common/wire/payload.h"

namespace rubato {

// The streaming method that carries frames, and the metadata that opens a stream.
constexpr char kDataMethod[] = "/rubato.Data/Stream";
constexpr char kJobDigestKey[] = "rubato-job-digest";

// The payload is not copied; its owner is kept until the message has been sent.
grpc::ByteBuffer MakeMessage(const Frame& frame, const Payload& payload);

struct Message {
  Frame frame;
  Payload payload;
};

// Copies the values only where they are not already contiguous and aligned. InvalidArgument if the
// bytes are no frame followed by whole floats.
absl::StatusOr<Message> ParseMessage(grpc::ByteBuffer bytes);

}  // namespace rubato

#endif  // RUBATO_COMMON_WIRE_MESSAGE_H_
