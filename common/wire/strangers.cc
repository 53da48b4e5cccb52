#include "common/wire/strangers.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/tcp.h>
#include <malloc.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

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
  close(fd);
}

bool HasEnded(int fd) {
  pollfd look = {fd, POLLRDHUP, 0};
  return poll(&look, 1, 0) == 1;
}

// By the kernel's count; 0 if it keeps none.
uint64_t BytesFrom(int fd) {
  tcp_info info = {};
  socklen_t size = sizeof info;
  return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 ? info.tcpi_bytes_received : 0;
}

}  // namespace

Strangers::~Strangers() {
  for (const Stranger& stranger : strangers_) close(stranger.fd);
}

void Strangers::Add(int fd, absl::Time now) {
  const std::string peer = PeerOf(fd);
  if (peer.empty()) return;
  const int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (own < 0) return;
  absl::MutexLock lock(&mutex_);
  strangers_.push_back({peer, own, now});
  if (strangers_.size() <= max_) return;
  Break(strangers_.front().fd);
  strangers_.pop_front();
}

void Strangers::OnMessage(const std::string& peer) {
  absl::MutexLock lock(&mutex_);
  if (strangers_.empty()) return;
  const auto found = std::find_if(strangers_.begin(), strangers_.end(),
                                  [&](const Stranger& other) { return other.peer == peer; });
  if (found == strangers_.end()) return;
  close(found->fd);
  strangers_.erase(found);
}

void Strangers::Look(absl::Time now) {
  absl::MutexLock lock(&mutex_);
  strangers_.remove_if([this, now](const Stranger& stranger) {
    const uint64_t bytes = BytesFrom(stranger.fd);
    const bool breaks = now - stranger.since >= kPatience || bytes > max_bytes_;
    if (!breaks && !HasEnded(stranger.fd)) return false;
    mutex_.AssertHeld();
    if (bytes > kMuch) gives_back_at_ = now + kUntilFreed;
    breaks ? Break(stranger.fd) : static_cast<void>(close(stranger.fd));
    return true;
  });
  if (now < gives_back_at_) return;
  gives_back_at_ = absl::InfiniteFuture();
  malloc_trim(/*pad=*/0);
}

bool Strangers::empty() const {
  absl::MutexLock lock(&mutex_);
  return strangers_.empty() && gives_back_at_ == absl::InfiniteFuture();
}

}  // namespace rubato
