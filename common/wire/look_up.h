// Resolves host names.
#ifndef RUBATO_COMMON_WIRE_LOOK_UP_H_
#define RUBATO_COMMON_WIRE_LOOK_UP_H_

#include <sys/socket.h>

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/address.h"

namespace rubato {

// An address of sockets, its port in it.
struct Place {
  sockaddr_storage address;
  socklen_t size;

  const sockaddr* socket_address() const { return reinterpret_cast<const sockaddr*>(&address); }
  // Its bytes, to be compared.
  std::string bytes() const { return std::string(reinterpret_cast<const char*>(&address), size); }
};

// The current addresses of the host. NotFound if there is no such name, Unavailable if no name
// server answers, which may take seconds.
absl::StatusOr<std::vector<Place>> LookUp(const HostPort& host);

// The same for each of `hosts`, in parallel, so that slow names do not delay one another. `look_up`
// is called on several threads.
std::vector<absl::StatusOr<std::vector<Place>>> LookUpAll(
    const std::vector<HostPort>& hosts,
    const std::function<absl::StatusOr<std::vector<Place>>(const HostPort&)>& look_up = LookUp);

// Whether each of `hosts` is, or stands for, an address of this machine. Unavailable as LookUp.
absl::StatusOr<bool> AreOfThisMachine(const std::vector<HostPort>& hosts);

}  // namespace rubato

#endif  // RUBATO_COMMON_WIRE_LOOK_UP_H_
