// How the two ends of a connection prove who they are. Today they do not: whoever can reach a
// process may talk to it.
#ifndef RUBATO_COMMON_WIRE_CREDENTIALS_H_
#define RUBATO_COMMON_WIRE_CREDENTIALS_H_

#include <grpcpp/grpcpp.h>

#include <memory>

namespace rubato {

// A value that a process makes once and gives to all its channels (channel.h) and to its listener
// (listener.h).
class Credentials {
 public:
  std::shared_ptr<grpc::ChannelCredentials> OfChannel() const {
    return grpc::InsecureChannelCredentials();
  }
  std::shared_ptr<grpc::ServerCredentials> OfServer() const {
    return grpc::InsecureServerCredentials();
  }
};

}  // namespace rubato

#endif  // RUBATO_COMMON_WIRE_CREDENTIALS_H_
