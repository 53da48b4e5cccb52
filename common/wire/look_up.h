// Names of hosts, looked up.
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

// What the host stands for now. NotFound if there is no such name, Unavailable if nobody knows,
// which may take seconds.
absl::StatusOr<std::vector<Place>> LookUp(const HostPort& host);

// The same of each of `hosts`, side by side: names of which nobody knows do not make one another
// wait. `look_up` is called by several threads.
std::vector<absl::StatusOr<std::vector<Place>>> LookUpAll(
    const std::vector<HostPort>& hosts,
    const std::function<absl::StatusOr<std::vector<Place>>(const HostPort&)>& look_up = LookUp);

}  // namespace rubato

#endif  // RUBATO_COMMON_WIRE_LOOK_UP_H_
