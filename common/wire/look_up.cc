#include "common/wire/look_up.h"

#include <netdb.h>

#include <cstring>

#include "absl/strings/str_cat.h"

namespace rubato {

absl::StatusOr<std::vector<Place>> LookUp(const HostPort& host) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.host.c_str(), absl::StrCat(host.port).c_str(), &hints, &found);
  if (error != 0) {
    const std::string why = absl::StrCat(host.host, ": ", gai_strerror(error));
    return error == EAI_NONAME ? absl::NotFoundError(why) : absl::UnavailableError(why);
  }
  std::vector<Place> places;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    Place& place = places.emplace_back();
    place.size = one->ai_addrlen;
    std::memcpy(&place.address, one->ai_addr, place.size);
  }
  freeaddrinfo(found);
  return places;
}

}  // namespace rubato
