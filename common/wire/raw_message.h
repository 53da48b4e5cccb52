// Converts protobuf messages from and to gRPC's bytes, for calls that gRPC does not parse, so that
// the caller is authenticated first.
#ifndef RUBATO_COMMON_WIRE_RAW_MESSAGE_H_
#define RUBATO_COMMON_WIRE_RAW_MESSAGE_H_

#include <grpcpp/grpcpp.h>

#include "common/base/check.h"

namespace rubato {

// `bytes` as a message. False if they are none.
template <typename Message>
bool FromBytes(grpc::ByteBuffer bytes, Message* message) {
  return grpc::SerializationTraits<Message>::Deserialize(&bytes, message).ok();
}

template <typename Message>
grpc::ByteBuffer ToBytes(const Message& message) {
  grpc::ByteBuffer bytes;
  bool own_buffer;
  const grpc::Status status =
      grpc::SerializationTraits<Message>::Serialize(message, &bytes, &own_buffer);
  RUBATO_CHECK(status.ok());
  return bytes;
}

}  // namespace rubato

#endif  // RUBATO_COMMON_WIRE_RAW_MESSAGE_H_
