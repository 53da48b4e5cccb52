// Where a process listens: its gRPC server, with the settings of a job's servers. The services
// authenticate each call.
#ifndef RUBATO_COMMON_WIRE_LISTENER_H_
#define RUBATO_COMMON_WIRE_LISTENER_H_

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "common/wire/acceptor.h"
#include "common/wire/connection_options.h"

namespace rubato {

// When connections are accepted: at once, or from the call of Accept on; until then callers wait.
enum class Accepting { kAtOnce, kLater };

class Listener {
 public:
  // At `addresses`, as ParseAddresses takes them; `add_services` registers what is served. `warn`
  // hears if nobody is asked for a key, and gets what the acceptor warns of. Unavailable if an
  // address is in use or not of this machine.
  static absl::StatusOr<Listener> Listen(const std::string& addresses,
                                         const ConnectionOptions& connection, Acceptor::Warn warn,
                                         absl::FunctionRef<void(grpc::ServerBuilder*)> add_services,
                                         Accepting accepting = Accepting::kAtOnce);

  // Of one that is Accepting::kLater: once.
  void Accept();

  // As given, with the ports that were free for those given as 0.
  const std::string& address() const { return address_; }

  // To this server, without a socket.
  std::shared_ptr<grpc::Channel> OwnChannel() const;

  // Breaks all calls and takes no more.
  void Shutdown();

 private:
  Listener() = default;

  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<Acceptor> acceptor_;  // goes first
  std::string address_;
  std::function<void()> accept_;  // starts the acceptor
};

}  // namespace rubato

#endif  // RUBATO_COMMON_WIRE_LISTENER_H_
