#include "common/wire/listener.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "common/base/address.h"
#include "common/base/status.h"
#include "common/wire/channel.h"

namespace rubato {

absl::StatusOr<Listener> Listener::Listen(
    const std::string& addresses, const ConnectionOptions& connection,
    absl::FunctionRef<void(grpc::ServerBuilder*)> add_services) {
  RUBATO_ASSIGN_OR_RETURN(std::vector<HostPort> places, ParseAddresses(addresses));
  grpc::ServerBuilder builder;
  ConfigureServer(connection, &builder);
  std::vector<int> ports(places.size());
  for (size_t i = 0; i < places.size(); ++i) {
    builder.AddListeningPort(ToString(places[i]), connection.credentials.OfServer(), &ports[i]);
  }
  add_services(&builder);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  std::string address;
  for (size_t i = 0; i < places.size(); ++i) {
    if (server == nullptr || ports[i] == 0) {
      return absl::UnavailableError(
          absl::StrFormat("cannot listen at %s: the port is in use (by another job? port 0 takes "
                          "any free one), or the address is not of this machine",
                          addresses));
    }
    places[i].port = ports[i];
    absl::StrAppend(&address, i > 0 ? "," : "", ToString(places[i]));
  }
  return Listener(std::move(server), std::move(address));
}

void Listener::Shutdown() { server_->Shutdown(absl::ToChronoTime(absl::Now())); }

}  // namespace rubato
