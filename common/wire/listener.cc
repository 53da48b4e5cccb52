#include "common/wire/listener.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/address.h"
#include "common/base/status.h"
#include "common/wire/channel.h"

namespace rubato {

absl::StatusOr<Listener> Listener::Listen(
    const std::string& addresses, const ConnectionOptions& connection, Acceptor::Warn warn,
    absl::FunctionRef<void(grpc::ServerBuilder*)> add_services, HelloBy hello_by) {
  RUBATO_ASSIGN_OR_RETURN(std::vector<HostPort> places, ParseAddresses(addresses));
  absl::StatusOr<std::unique_ptr<Acceptor>> acceptor = Acceptor::Listen(std::move(places));
  if (!acceptor.ok()) {
    return absl::UnavailableError(
        absl::StrCat("cannot listen at ", addresses, ": ", acceptor.status().message()));
  }
  grpc::ServerBuilder builder;
  ConfigureServer(connection, &builder);
  std::shared_ptr<grpc::experimental::ExternalConnectionAcceptor> to_server =
      builder.experimental().AddExternalConnectionAcceptor(
          grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
          connection.credentials.OfServer());
  std::unique_ptr<HelloService> hello;
  if (connection.credentials.gate() != nullptr && hello_by == HelloBy::kListener) {
    hello = std::make_unique<HelloService>(connection.credentials.gate());
    builder.RegisterService(hello.get());
  }
  add_services(&builder);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) return absl::InternalError("gRPC's server does not start");
  if (!connection.credentials.asks_callers()) {
    warn(
        "asks nobody for a key (security.mode: none): whoever reaches this server may read the "
        "parameters, change them and stop the job");
  }
  (*acceptor)->Start(
      [to_server](int fd) {
        grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
        connection.fd = fd;
        to_server->HandleNewConnection(&connection);
      },
      std::move(warn), connection.strangers);
  std::string address;
  for (const HostPort& place : (*acceptor)->places()) {
    absl::StrAppend(&address, address.empty() ? "" : ",", ToString(place));
  }
  return Listener(std::move(hello), std::move(server), *std::move(acceptor), std::move(address));
}

std::shared_ptr<grpc::Channel> Listener::OwnChannel() const {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxReplyBytes);
  return server_->InProcessChannel(arguments);
}

void Listener::Shutdown() {
  acceptor_->Stop();
  server_->Shutdown(absl::ToChronoTime(absl::Now()));
}

}  // namespace rubato
