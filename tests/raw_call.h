// A gRPC call whose messages are any bytes, and a TCP connection: what a confused or hostile peer
// might send.
#ifndef RUBATO_TESTS_RAW_CALL_H_
#define RUBATO_TESTS_RAW_CALL_H_

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace rubato {

// One bidirectional stream, of compressed messages if asked for, used from one thread; every
// operation blocks until it is done, at most kTestPatience after the start of the call.
class RawCall {
 public:
  RawCall(const std::string& address, const std::string& method,
          const std::map<std::string, std::string>& metadata, bool compressed = false);
  // Breaks the call if it has not been finished.
  ~RawCall();

  // False if the stream has ended.
  bool Write(absl::string_view bytes);
  bool Read(std::string* bytes);

  // Sends no more, reads all that comes and returns the status with which the peer ends the call.
  grpc::Status Finish();

 private:
  bool Await();

  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
  bool finished_ = false;
};

// Opens a stream, sends the messages and returns the status with which the peer ends it: by itself,
// or after the last message.
grpc::Status SendAll(const std::string& address, const std::string& method,
                     const std::map<std::string, std::string>& metadata,
                     const std::vector<std::string>& messages);

// Connects, sends the bytes and waits for the peer to close the connection. False if it does not
// within kTestPatience.
bool IsClosedAfter(const std::string& address, absl::string_view bytes);

}  // namespace rubato

#endif  // RUBATO_TESTS_RAW_CALL_H_
