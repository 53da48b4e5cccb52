// gRPC's classes by name, for headers that only hand them on: gRPC's own headers take the compiler
// over half a second.
#ifndef RUBATO_COMMON_WIRE_GRPC_TYPES_H_
#define RUBATO_COMMON_WIRE_GRPC_TYPES_H_

namespace grpc {

class ByteBuffer;
class Channel;
class ChannelArguments;
class ChannelCredentials;
class CompletionQueue;
class ServerBuilder;
class ServerContextBase;
class ServerCredentials;
class Status;

}  // namespace grpc

#endif  // RUBATO_COMMON_WIRE_GRPC_TYPES_H_
