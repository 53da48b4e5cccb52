#include "common/wire/listener.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/wire/channel.h"
#include "common/wire/http2_opening.h"

namespace rubato {

namespace {

// Whether all addresses of a machine are among these.
bool WantsAny(const std::string& addresses) { return absl::StrContains(addresses, "[::]:"); }

}  // namespace

absl::StatusOr<Listener> Listener::Listen(
    const std::string& addresses, const ConnectionOptions& connection, Acceptor::Warn warn,
    absl::FunctionRef<void(grpc::ServerBuilder*)> add_services, Accepting accepting) {
  RUBATO_ASSIGN_OR_RETURN(std::unique_ptr<Acceptor> acceptor, Acceptor::Listen(addresses));
  Listener listener;
  grpc::ServerBuilder builder;
  ConfigureServer(connection, &builder);
  Acceptor::Take take = Acceptor::ToServerOf(&builder, connection.credentials.OfServer());
  add_services(&builder);
  listener.server_ = builder.BuildAndStart();
  if (listener.server_ == nullptr) return absl::InternalError("gRPC's server does not start");
  if (!connection.credentials.asks_callers()) {
    warn(
        "asks nobody for a key (security.mode: none): whoever reaches this server may read the "
        "parameters, change them and stop the job");
  }
  // With certificates the first bytes are of TLS, and who has none gets no further.
  const std::string settings = connection.credentials.is_tls() ? "" : FirstSettings(kMaxCalls);
  listener.accept_ = [acceptor = acceptor.get(), take = std::move(take), warn = std::move(warn),
                      connections = connection.connections,
                      settings] { acceptor->Start(take, warn, connections, settings); };
  listener.address_ = acceptor->address();
  if (WantsAny(addresses) && !WantsAny(listener.address_)) {
    warn(absl::StrCat("there is no IPv6 here: listens at ", listener.address_, " in place of ",
                      addresses));
  }
  listener.acceptor_ = std::move(acceptor);
  if (accepting == Accepting::kAtOnce) listener.Accept();
  return listener;
}

void Listener::Accept() { accept_(); }

std::shared_ptr<grpc::Channel> Listener::OwnChannel() const {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxReplyBytes);
  return server_->InProcessChannel(arguments);
}

void Listener::Shutdown() {
  acceptor_->Stop();
  server_->Shutdown(DeadlineIn(absl::ZeroDuration()));
}

}  // namespace rubato
