#include "common/wire/listener.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/address.h"
#include "common/base/status.h"
#include "common/wire/channel.h"

namespace rubato {
namespace {

// Why nobody can listen there, which gRPC does not tell: it is tried again without it.
std::string WhyNot(const HostPort& place) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int unknown =
      getaddrinfo(place.host.c_str(), absl::StrCat(place.port).c_str(), &hints, &found);
  if (unknown != 0) {
    return absl::StrCat("the name ", place.host, " is not known here (", gai_strerror(unknown),
                        ")");
  }
  const int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int error = fd >= 0 && bind(fd, found->ai_addr, found->ai_addrlen) == 0 ? 0 : errno;
  if (fd >= 0) close(fd);
  freeaddrinfo(found);
  if (error == EADDRNOTAVAIL) return "the address is not of this machine";
  if (error == 0 || error == EADDRINUSE) {
    return "the port is in use (by another job? port 0 takes any free one)";
  }
  return std::strerror(error);
}

}  // namespace

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
      // Where one fails, gRPC's server may be none for all: the first that another cannot bind.
      return absl::UnavailableError(
          absl::StrCat("cannot listen at ", addresses, ": ", WhyNot(places[i])));
    }
    places[i].port = ports[i];
    absl::StrAppend(&address, i > 0 ? "," : "", ToString(places[i]));
  }
  return Listener(std::move(server), std::move(address));
}

void Listener::Shutdown() { server_->Shutdown(absl::ToChronoTime(absl::Now())); }

}  // namespace rubato
