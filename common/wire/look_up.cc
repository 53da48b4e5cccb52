#include "common/wire/look_up.h"

#include <netdb.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>

#include "absl/strings/str_cat.h"

namespace rubato {
namespace {

constexpr size_t kMostAtOnce = 64;

// The kernel lets nobody listen at an address that it does not have.
bool IsOfThisMachine(const Place& place) {
  const int fd = socket(place.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  const bool is_bound = bind(fd, place.socket_address(), place.size) == 0;
  close(fd);
  return is_bound;
}

}  // namespace

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

std::vector<absl::StatusOr<std::vector<Place>>> LookUpAll(
    const std::vector<HostPort>& hosts,
    const std::function<absl::StatusOr<std::vector<Place>>(const HostPort&)>& look_up) {
  std::vector<absl::StatusOr<std::vector<Place>>> found(hosts.size());
  std::atomic<size_t> next{0};
  const auto run = [&] {
    for (size_t i = next++; i < hosts.size(); i = next++) found[i] = look_up(hosts[i]);
  };
  std::vector<std::thread> threads;
  while (threads.size() + 1 < std::min(hosts.size(), kMostAtOnce)) threads.emplace_back(run);
  run();
  for (std::thread& thread : threads) thread.join();
  return found;
}

absl::StatusOr<bool> AreOfThisMachine(const std::vector<HostPort>& hosts) {
  for (HostPort host : hosts) {
    host.port = 0;  // its own may be in use
    const absl::StatusOr<std::vector<Place>> places = LookUp(host);
    if (!places.ok() && !absl::IsNotFound(places.status())) return places.status();
    if (!places.ok() || std::none_of(places->begin(), places->end(), IsOfThisMachine)) return false;
  }
  return true;
}

}  // namespace rubato
