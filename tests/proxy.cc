#include "tests/proxy.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "common/base/check.h"

namespace rubato {
namespace {

constexpr int kBacklog = 16;

// To an address of loopback; below 0 if nobody listens there.
int ConnectTo(const std::string& address, int flags = 0) {
  int port = 0;
  RUBATO_CHECK(absl::SimpleAtoi(address.substr(address.rfind(':') + 1), &port));
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | flags, 0);
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  to.sin_port = htons(static_cast<uint16_t>(port));
  if (fd >= 0 &&
      (connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0 || errno == EINPROGRESS)) {
    return fd;
  }
  close(fd);
  return -1;
}

// Sends what it can of `bytes`, and drops it from there. False if nobody takes it any more.
bool SendSome(int to, std::string* bytes) {
  while (!bytes->empty()) {
    const ssize_t sent = send(to, bytes->data(), bytes->size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    if (sent <= 0) return false;
    bytes->erase(0, static_cast<size_t>(sent));
  }
  return true;
}

// Moves what is there from one end to the other, or to `pending` what that does not take yet. False
// at the end of the stream.
bool Forward(int from, int to, std::string* pending) {
  char bytes[1 << 16];
  const ssize_t got = recv(from, bytes, sizeof bytes, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  if (got <= 0) return false;
  pending->assign(bytes, static_cast<size_t>(got));
  return SendSome(to, pending);
}

}  // namespace

Proxy::Proxy() : listener_(port_.Listen()) {
  RUBATO_CHECK(pipe2(wake_, O_CLOEXEC) == 0);
  thread_ = std::thread([this] { Run(); });
}

Proxy::~Proxy() {
  Heal();
  {
    absl::MutexLock lock(&mutex_);
    ending_ = true;
  }
  Wake();
  thread_.join();
  for (const Connection& connection : connections_) {
    for (const int end : connection.ends) close(end);
  }
  for (const int fd : {listener_, wake_[0], wake_[1]}) close(fd);
}

void Proxy::Wake() { (void)!write(wake_[1], "", 1); }

void Proxy::SetTarget(const std::string& address) {
  absl::MutexLock lock(&mutex_);
  target_ = address;
  Wake();
}

void Proxy::Mark() {
  absl::MutexLock lock(&mutex_);
  marks_ = true;
}

// A kernel takes connections for who does not accept them, which no cut network does, until the
// queue for them is full.
void Proxy::Cut() {
  absl::MutexLock lock(&mutex_);
  cut_ = true;
  RUBATO_CHECK(listen(listener_, 0) == 0);
  for (int& filler : fillers_) filler = ConnectTo(address(), SOCK_NONBLOCK);
  Wake();
}

void Proxy::Heal() {
  absl::MutexLock lock(&mutex_);
  if (!cut_) return;
  cut_ = false;
  for (const int filler : fillers_) close(filler);
  RUBATO_CHECK(listen(listener_, kBacklog) == 0);
  Wake();
}

void Proxy::Accept() {
  const int client = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
  if (client < 0) return;
  const int server = ConnectTo(target_);
  if (server < 0) {
    close(client);
    return;
  }
  connections_.push_back({{client, server}, {"", ""}, {false, false}, marks_});
}

void Proxy::Run() {
  while (true) {
    std::vector<pollfd> fds = {{wake_[0], POLLIN, 0}};
    // By number of the connection and the end: others come and go at the queue's end only here.
    std::vector<std::pair<size_t, int>> sources;
    {
      absl::MutexLock lock(&mutex_);
      if (ending_) return;
      fds.push_back({target_.empty() || cut_ ? -1 : listener_, POLLIN, 0});
      for (size_t i = 0; i < connections_.size(); ++i) {
        const Connection& connection = connections_[i];
        if (cut_ && connection.is_marked) continue;
        for (const int end : {0, 1}) {
          if (connection.closed[end]) continue;
          // What is pending goes first: a slow reader slows its writer, as without a proxy.
          fds.push_back(connection.pending[end].empty()
                            ? pollfd{connection.ends[end], POLLIN, 0}
                            : pollfd{connection.ends[1 - end], POLLOUT, 0});
          sources.emplace_back(i, end);
        }
      }
    }
    if (poll(fds.data(), fds.size(), -1) < 0) continue;
    absl::MutexLock lock(&mutex_);
    if (fds[0].revents != 0) {
      char byte;
      (void)!read(wake_[0], &byte, 1);
      continue;
    }
    for (size_t k = 0; k < sources.size(); ++k) {
      if (fds[k + 2].revents == 0) continue;
      const auto [i, end] = sources[k];
      Connection& connection = connections_[i];
      const int from = connection.ends[end], to = connection.ends[1 - end];
      std::string* const pending = &connection.pending[end];
      if (pending->empty() ? Forward(from, to, pending) : SendSome(to, pending)) continue;
      connection.closed[end] = true;
      shutdown(connection.ends[1 - end], SHUT_WR);
    }
    if (fds[1].revents != 0) Accept();
  }
}

}  // namespace rubato
