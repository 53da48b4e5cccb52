#include "common/wire/acceptor.h"

#include <grpcpp/grpcpp.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "common/base/monotonic.h"
#include "common/base/status.h"
#include "common/wire/http2_opening.h"

namespace rubato {
namespace {

constexpr int kOn = 1, kOff = 0;
constexpr char kAnyAddress[] = "::", kAnyIpv4Address[] = "0.0.0.0";
// Between two looks for a free descriptor.
constexpr absl::Duration kRetry = absl::Milliseconds(20);

rlim_t DescriptorLimit() {
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_cur;
}

// Whether the kernel knows it at all; a socket for any address takes IPv4's connections, too.
bool HasIpv6() {
  const int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return errno != EAFNOSUPPORT;
  close(fd);
  return true;
}

std::string WhyNot(int error, const std::string& host) {
  if (error == EADDRNOTAVAIL) return "the address is not of this machine";
  if (error == EADDRINUSE) {
    return absl::StrCat(
        "the port is in use (by another job? cluster.address, or --listen of a server, sets "
        "another; port 0 takes any free one: --set cluster.address=",
        ToString({host, 0}), ")");
  }
  return std::strerror(error);
}

void SetPort(int port, sockaddr* address) {
  const uint16_t number = htons(static_cast<uint16_t>(port));
  if (address->sa_family == AF_INET) reinterpret_cast<sockaddr_in*>(address)->sin_port = number;
  if (address->sa_family == AF_INET6) reinterpret_cast<sockaddr_in6*>(address)->sin6_port = number;
}

int PortOf(int fd) {
  sockaddr_in6 address = {};  // its port lies where an IPv4 address has its own
  socklen_t size = sizeof address;
  RUBATO_CHECK(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0);
  return ntohs(address.sin6_port);
}

// Others may have descriptors of it, too (connections.h).
void Break(int fd) {
  shutdown(fd, SHUT_RDWR);
  close(fd);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Acceptor>> Acceptor::Listen(std::vector<HostPort> places) {
  std::unique_ptr<Acceptor> acceptor(new Acceptor(std::move(places)));
  for (HostPort& place : acceptor->places_) {
    if (const std::string why = acceptor->Bind(&place); !why.empty()) {
      return absl::UnavailableError(why);
    }
  }
  acceptor->wake_fd_ = eventfd(0, EFD_CLOEXEC);
  if (acceptor->wake_fd_ < 0) return absl::UnavailableError(std::strerror(errno));
  return acceptor;
}

std::string Acceptor::Bind(HostPort* place) {
  if (place->host == kAnyAddress && !HasIpv6()) place->host = kAnyIpv4Address;
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int unknown = getaddrinfo(place->host.c_str(), nullptr, &hints, &found);
  if (unknown != 0) {
    return absl::StrCat("the name ", place->host, " is not known here (", gai_strerror(unknown),
                        ")");
  }
  const auto free_found = absl::MakeCleanup([found] { freeaddrinfo(found); });
  std::string why;
  bool listens = false;
  for (addrinfo* address = found; address != nullptr; address = address->ai_next) {
    SetPort(place->port, address->ai_addr);
    const int fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0) {
      setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &kOn, sizeof kOn);
      if (address->ai_family == AF_INET6) {
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &kOff, sizeof kOff);
      }
    }
    if (fd < 0 || bind(fd, address->ai_addr, address->ai_addrlen) != 0 ||
        listen(fd, SOMAXCONN) != 0) {
      if (why.empty()) why = WhyNot(errno, place->host);
      if (fd >= 0) close(fd);
      continue;
    }
    listeners_.push_back(fd);
    place->port = PortOf(fd);
    listens = true;
  }
  return listens ? "" : why;
}

absl::StatusOr<std::unique_ptr<Acceptor>> Acceptor::Listen(const std::string& addresses) {
  RUBATO_ASSIGN_OR_RETURN(std::vector<HostPort> places, ParseAddresses(addresses));
  absl::StatusOr<std::unique_ptr<Acceptor>> acceptor = Listen(std::move(places));
  if (acceptor.ok()) return acceptor;
  return absl::UnavailableError(
      absl::StrCat("cannot listen at ", addresses, ": ", acceptor.status().message()));
}

std::string Acceptor::address() const {
  return absl::StrJoin(places_, ",", [](std::string* text, const HostPort& place) {
    absl::StrAppend(text, ToString(place));
  });
}

Acceptor::Take Acceptor::ToServerOf(grpc::ServerBuilder* builder,
                                    const std::shared_ptr<grpc::ServerCredentials>& credentials) {
  const std::shared_ptr<grpc::experimental::ExternalConnectionAcceptor> to_server =
      builder->experimental().AddExternalConnectionAcceptor(
          grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, credentials);
  return [to_server](int fd) {
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
    connection.fd = fd;
    to_server->HandleNewConnection(&connection);
  };
}

void Acceptor::Start(Take take, Warn warn, std::shared_ptr<Connections> connections,
                     std::string first_settings) {
  take_ = std::move(take);
  warn_ = std::move(warn);
  connections_ = std::move(connections);
  first_settings_ = std::move(first_settings);
  thread_ = std::thread([this] { Run(); });
}

void Acceptor::Stop() {
  if (thread_.joinable()) {
    const uint64_t one = 1;
    RUBATO_CHECK(write(wake_fd_, &one, sizeof one) == sizeof one);
    thread_.join();
  }
  for (const int fd : listeners_) close(fd);
  for (const int fd : opening_) Break(fd);
  listeners_.clear();
  opening_.clear();
  if (wake_fd_ >= 0) close(wake_fd_);
  wake_fd_ = -1;
}

void Acceptor::Run() {
  pthread_setname_np(pthread_self(), "acceptor");
  std::vector<pollfd> fds;
  bool has_room = true;
  while (true) {
    fds = {{wake_fd_, POLLIN, 0}};
    for (const int fd : opening_) fds.push_back({fd, POLLIN, 0});
    const size_t first_listener = fds.size();
    // Without room a connection that waits would be found again at once.
    if (has_room) {
      for (const int fd : listeners_) fds.push_back({fd, POLLIN, 0});
    }
    absl::Duration wait = has_room ? absl::InfiniteDuration() : kRetry;
    if (connections_ != nullptr) {
      const std::vector<int> silent = connections_->Silent();
      for (const int fd : silent) fds.push_back({fd, POLLIN | POLLRDHUP, 0});
      if (silent.empty()) wait = std::min(wait, connections_->UntilNextLook());
    }
    const bool waits_for_ever = wait == absl::InfiniteDuration();
    const int milliseconds =
        waits_for_ever ? -1 : static_cast<int>(absl::ToInt64Milliseconds(wait));
    const int ready = poll(fds.data(), fds.size(), milliseconds);
    if (ready > 0 && fds[0].revents != 0) return;
    if (connections_ != nullptr) connections_->Look(MonotonicNow());
    opening_.clear();
    for (size_t i = 1; i < first_listener; ++i) {
      if (fds[i].revents == 0 || !Open(fds[i].fd)) opening_.push_back(fds[i].fd);
    }
    const bool retries = !has_room;
    has_room = true;
    for (size_t i = 0; i < listeners_.size(); ++i) {
      if (retries || fds[first_listener + i].revents != 0) {
        has_room = Accept(listeners_[i]) && has_room;
      }
    }
  }
}

bool Acceptor::Accept(int listener) {
  const int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  const rlim_t limit = DescriptorLimit();
  if (fd < 0) {
    if (errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM) return true;
    WarnOnce(absl::StrCat("cannot take connections: ", std::strerror(errno),
                          "; tried again until it can"));
    return false;
  }
  // A new descriptor is the lowest number that is free, so as many are in use.
  if (static_cast<rlim_t>(fd) >= limit - limit / 4) {
    close(fd);
    WarnOnce(
        absl::StrFormat("refuses connections: %d descriptors of at most %d (ulimit -n) are in "
                        "use, and the rest is for files",
                        fd, limit));
    return true;
  }
  warned_ = false;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &kOn, sizeof kOn);
  if (connections_ != nullptr) connections_->Add(fd, MonotonicNow());
  const auto size = static_cast<ssize_t>(first_settings_.size());
  if (size == 0) {
    take_(fd);
  } else if (send(fd, first_settings_.data(), first_settings_.size(), MSG_NOSIGNAL) == size) {
    opening_.push_back(fd);
  } else {
    Break(fd);
  }
  return true;
}

bool Acceptor::Open(int fd) {
  char bytes[kMaxOpeningBytes];
  const ssize_t size = recv(fd, bytes, sizeof bytes, MSG_PEEK | MSG_DONTWAIT);
  if (size < 0 && errno == EAGAIN) return false;
  const Opening opening =
      size > 0 ? ReadOpening({bytes, static_cast<size_t>(size)}) : Opening::kTooLong;
  // Of one that opens still, poll tells when there is more than was seen, and of its end for ever.
  const bool opens = opening == Opening::kUnfinished;
  const int awaited = opens ? static_cast<int>(size) + 1 : 1;
  pollfd end = {fd, POLLRDHUP, 0};
  if (opening == Opening::kTooLong || (opens && poll(&end, 1, 0) != 0) ||
      setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &awaited, sizeof awaited) != 0) {
    Break(fd);
    return true;
  }
  if (!opens) take_(fd);
  return !opens;
}

void Acceptor::WarnOnce(const std::string& text) {
  if (!std::exchange(warned_, true)) warn_(text);
}

}  // namespace rubato
