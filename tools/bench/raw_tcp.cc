#include "tools/bench/raw_tcp.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/check.h"
#include "common/base/status.h"
#include "tools/bench/peer.h"
#include "tools/bench/yardsticks.h"

namespace rubato {
namespace {

enum class Op : int64_t { kPush, kPull, kRoundTrips };

// Opens an exchange of `count` messages.
struct Request {
  Op op;
  int64_t bytes;
  int64_t count;
};

bool SendAll(int fd, const void* data, int64_t size) {
  const char* at = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t sent = send(fd, at, static_cast<size_t>(size), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    at += sent;
    size -= sent;
  }
  return true;
}

bool ReceiveAll(int fd, void* data, int64_t size) {
  return recv(fd, data, static_cast<size_t>(size), MSG_WAITALL) == size;
}

// Until the client goes.
void Serve(int fd) {
  Request request;
  std::vector<char> buffer;
  while (ReceiveAll(fd, &request, sizeof(request))) {
    buffer.resize(static_cast<size_t>(request.bytes), 1);
    for (int64_t i = 0; i < request.count; ++i) {
      if (request.op != Op::kPull && !ReceiveAll(fd, buffer.data(), request.bytes)) return;
      if (request.op != Op::kPush && !SendAll(fd, buffer.data(), request.bytes)) return;
    }
    if (request.op == Op::kPush && !SendAll(fd, "", 1)) return;
  }
}

int MakeSocket() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int one = 1;
  RUBATO_CHECK(fd >= 0 && setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) == 0);
  return fd;
}

absl::Status Broken() { return absl::UnavailableError("the raw TCP connection broke"); }

}  // namespace

int ServeRawTcp() {
  const int listener = MakeSocket();
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  RUBATO_CHECK(bind(listener, generic, size) == 0 && listen(listener, 1) == 0 &&
               getsockname(listener, generic, &size) == 0);
  std::thread([listener] {
    while (true) {
      const int fd = accept(listener, nullptr, nullptr);
      if (fd < 0) return;
      Serve(fd);
      close(fd);
    }
  }).detach();
  ServeUntilTold(absl::StrCat(ntohs(address.sin_port)));
  std::fflush(nullptr);
  _exit(0);  // the thread may be receiving
}

absl::StatusOr<std::unique_ptr<RawTcp>> RawTcp::Connect(const std::string& address) {
  int port = 0;
  RUBATO_CHECK(absl::SimpleAtoi(address, &port));
  sockaddr_in peer = {};
  peer.sin_family = AF_INET;
  peer.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  peer.sin_port = htons(static_cast<uint16_t>(port));
  std::unique_ptr<RawTcp> client(new RawTcp(MakeSocket()));
  if (connect(client->fd_, reinterpret_cast<sockaddr*>(&peer), sizeof(peer)) != 0) return Broken();
  return client;
}

RawTcp::~RawTcp() { close(fd_); }

absl::StatusOr<double> RawTcp::Push(int64_t bytes, int64_t count) {
  const std::vector<char> buffer(static_cast<size_t>(bytes), 1);
  bool ok = true;
  const double seconds = SecondsOf([&] {
    const Request request = {Op::kPush, bytes, count};
    ok = SendAll(fd_, &request, sizeof(request));
    for (int64_t i = 0; ok && i < count; ++i) ok = SendAll(fd_, buffer.data(), bytes);
    char byte;
    ok = ok && ReceiveAll(fd_, &byte, 1);
  });
  if (!ok) return Broken();
  return seconds;
}

absl::StatusOr<double> RawTcp::Pull(int64_t bytes, int64_t count) {
  std::vector<char> buffer(static_cast<size_t>(bytes), 1);
  bool ok = true;
  const double seconds = SecondsOf([&] {
    const Request request = {Op::kPull, bytes, count};
    ok = SendAll(fd_, &request, sizeof(request));
    for (int64_t i = 0; ok && i < count; ++i) ok = ReceiveAll(fd_, buffer.data(), bytes);
  });
  if (!ok) return Broken();
  return seconds;
}

absl::StatusOr<std::vector<double>> RawTcp::RoundTrips(int64_t bytes, int64_t count) {
  std::vector<char> buffer(static_cast<size_t>(bytes), 1);
  const Request request = {Op::kRoundTrips, bytes, count};
  bool ok = SendAll(fd_, &request, sizeof(request));
  std::vector<double> seconds;
  for (int64_t i = 0; ok && i < count; ++i) {
    seconds.push_back(SecondsOf(
        [&] { ok = SendAll(fd_, buffer.data(), bytes) && ReceiveAll(fd_, buffer.data(), bytes); }));
  }
  if (!ok) return Broken();
  return seconds;
}

}  // namespace rubato
