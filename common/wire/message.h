// Frames as gRPC messages. A message holds one frame or several: small ones travel together, since
// a message costs as much as some ten KiB of payload do.
#ifndef RUBATO_COMMON_WIRE_MESSAGE_H_
#define RUBATO_COMMON_WIRE_MESSAGE_H_

#include <grpcpp/support/byte_buffer.h>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "common/frames/frame.h"
#include "common/frames/received_values.h"
#include "common/wire/outbox.h"

namespace rubato {

// Takes the first frame from `outbox`, which has one, and those behind it that fit into a message
// of kMessageBytes and little more. Large payloads are not copied; their owners are kept until the
// message has been sent.
grpc::ByteBuffer TakeMessage(Outbox* outbox);

// Calls `on_frame` with each frame of a message, in order, until one returns an error, which is
// returned. InvalidArgument if the bytes are no whole frames.
absl::Status ReadMessage(
    const grpc::ByteBuffer& message,
    absl::FunctionRef<absl::Status(const Frame& frame, const ReceivedValues& values)> on_frame);

}  // namespace rubato

#endif  // RUBATO_COMMON_WIRE_MESSAGE_H_
