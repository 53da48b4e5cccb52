#include "common/wire/connections.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/tcp.h>
#include <malloc.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"

namespace rubato {
namespace {

// As gRPC names it; empty if it is not told from its name alone.
std::string PeerOf(int fd) {
  sockaddr_storage storage = {};
  socklen_t size = sizeof storage;
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&storage), &size) != 0) return "";
  char text[INET6_ADDRSTRLEN] = {};
  if (storage.ss_family == AF_INET) {
    const auto& address = reinterpret_cast<const sockaddr_in&>(storage);
    inet_ntop(AF_INET, &address.sin_addr, text, sizeof text);
    return absl::StrCat("ipv4:", text, ":", ntohs(address.sin_port));
  }
  if (storage.ss_family != AF_INET6) return "";
  const auto& address = reinterpret_cast<const sockaddr_in6&>(storage);
  const int port = ntohs(address.sin6_port);
  if (IN6_IS_ADDR_V4MAPPED(&address.sin6_addr)) {
    inet_ntop(AF_INET, &address.sin6_addr.s6_addr[12], text, sizeof text);
    return absl::StrCat("ipv4:", text, ":", port);
  }
  if (address.sin6_scope_id != 0) return "";
  inet_ntop(AF_INET6, &address.sin6_addr, text, sizeof text);
  return absl::StrCat("ipv6:%5B", text, "%5D:", port);
}

void Break(int fd) {
  shutdown(fd, SHUT_RDWR);  // for gRPC's descriptor of it, too
  // What waits to be read is not.
  recv(fd, nullptr, std::numeric_limits<int>::max(), MSG_TRUNC | MSG_DONTWAIT);
  close(fd);
}

// POLLIN if there is something to read, anything else if it has ended.
int EventsOf(int fd) {
  pollfd look = {fd, POLLIN | POLLRDHUP, 0};
  return poll(&look, 1, 0) == 1 ? look.revents : 0;
}

// By the kernel's count; 0 if it keeps none.
uint64_t BytesFrom(int fd) {
  tcp_info info = {};
  socklen_t size = sizeof info;
  return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 ? info.tcpi_bytes_received : 0;
}

}  // namespace

Connections::~Connections() {
  for (const std::list<Connection>* connections : {&strangers_, &known_}) {
    for (const Connection& connection : *connections) close(connection.fd);
  }
}

void Connections::Add(int fd, absl::Time now) {
  const std::string peer = PeerOf(fd);
  if (peer.empty()) return;
  const int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (own < 0) return;
  absl::MutexLock lock(&mutex_);
  strangers_.push_back({peer, own, now, nullptr});
  if (strangers_.size() <= limits_.strangers) return;
  Break(strangers_.front().fd);
  strangers_.pop_front();
}

Connections::HasRead Connections::OnKnown(const std::string& peer) {
  const auto is_peer = [&](const Connection& other) { return other.peer == peer; };
  absl::MutexLock lock(&mutex_);
  auto found = std::find_if(strangers_.begin(), strangers_.end(), is_peer);
  if (found != strangers_.end()) {
    found->has_read = std::make_shared<std::atomic<bool>>(true);
    known_.splice(known_.begin(), strangers_, found);
    return found->has_read;
  }
  found = std::find_if(known_.begin(), known_.end(), is_peer);
  if (found == known_.end()) return std::make_shared<std::atomic<bool>>();  // it has ended
  *found->has_read = true;
  return found->has_read;
}

bool Connections::IsOver(Connection* connection, absl::Time now) {
  const bool is_stranger = connection->has_read == nullptr;
  const uint64_t bytes = BytesFrom(connection->fd);
  if (!is_stranger && connection->has_read->exchange(false)) connection->bytes_before = bytes;
  const bool breaks = is_stranger
                          ? now - connection->since >= kPatience || bytes > limits_.stranger_bytes
                          : bytes - connection->bytes_before > limits_.unread_bytes;
  const int events = EventsOf(connection->fd);
  if (std::exchange(connection->bytes_seen, bytes) != bytes || events != 0) are_silent_ = false;
  if (!breaks && (events & ~POLLIN) == 0) return false;
  if (breaks ? bytes > kMuch : is_stranger && bytes > kMuch) gives_back_at_ = now + kUntilFreed;
  breaks ? Break(connection->fd) : static_cast<void>(close(connection->fd));
  return true;
}

void Connections::Look(absl::Time now) {
  absl::MutexLock lock(&mutex_);
  const auto is_over = [this, now](Connection& connection) {
    mutex_.AssertHeld();
    return IsOver(&connection, now);
  };
  strangers_.remove_if(is_over);
  are_silent_ = now >= looks_at_known_;
  if (now >= looks_at_known_) {
    known_.remove_if(is_over);
    looks_at_known_ = now + BetweenLooks();
  }
  if (now >= gives_back_at_) {
    gives_back_at_ = absl::InfiniteFuture();
    malloc_trim(/*pad=*/0);
  }
}

std::vector<int> Connections::Silent() const {
  absl::MutexLock lock(&mutex_);
  std::vector<int> silent;
  if (!are_silent_ || LooksAnyway()) return silent;
  for (const Connection& connection : known_) silent.push_back(connection.fd);
  return silent;
}

absl::Duration Connections::UntilNextLook() const {
  absl::MutexLock lock(&mutex_);
  if (LooksAnyway()) return kBetweenLooks;
  return known_.empty() ? absl::InfiniteDuration() : BetweenLooks();
}

bool Connections::LooksAnyway() const {
  return !strangers_.empty() || gives_back_at_ != absl::InfiniteFuture();
}

absl::Duration Connections::BetweenLooks() const {
  return kBetweenLooks + static_cast<int64_t>(known_.size()) * kForEachKnown;
}

}  // namespace rubato
