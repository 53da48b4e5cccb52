#include "tests/unfinished_calls.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "common/base/check.h"

namespace rubato {
namespace {

// Of HTTP/2 (RFC 9113): kinds of frames, the flag of the last header, what a call may send first.
constexpr uint8_t kData = 0, kHeaders = 1, kReset = 3, kSettings = 4, kPing = 6, kWindow = 8;
constexpr uint8_t kAck = 1, kEndHeaders = 4;
constexpr int64_t kFirstWindow = 4 << 20;  // as our servers' settings say
constexpr int64_t kMessage = (8 << 20) - 100, kUnsent = 1000;
constexpr size_t kFrameHeader = 9;
constexpr int64_t kMaxFrame = 16384;

std::string BigEndian(uint64_t value, int bytes) {
  std::string text;
  for (int i = bytes - 1; i >= 0; --i) text += static_cast<char>(value >> (8 * i));
  return text;
}

uint32_t FromBigEndian(absl::string_view bytes) {
  uint32_t value = 0;
  for (const char byte : bytes) value = value << 8 | static_cast<uint8_t>(byte);
  return value;
}

std::string FrameOf(uint8_t kind, uint8_t flags, uint32_t call, absl::string_view payload) {
  std::string frame = BigEndian(payload.size(), 3);
  frame += static_cast<char>(kind);
  frame += static_cast<char>(flags);
  frame += BigEndian(call, 4);
  return frame.append(payload.data(), payload.size());
}

std::string Headers(const std::string& method) {
  std::string headers;
  for (const auto& [name, value] :
       std::vector<std::pair<std::string, std::string>>{{":method", "POST"},
                                                        {":scheme", "http"},
                                                        {":path", method},
                                                        {":authority", "test"},
                                                        {"content-type", "application/grpc"},
                                                        {"te", "trailers"}}) {
    headers += '\0';  // neither in a table nor to be put into one
    for (const std::string& text : {name, value}) headers += BigEndian(text.size(), 1) + text;
  }
  return headers;
}

}  // namespace

UnfinishedCalls::UnfinishedCalls(const std::string& address, int connections, bool acknowledges)
    : acknowledges_(acknowledges), connections_(connections) {
  int port = 0;
  RUBATO_CHECK(absl::SimpleAtoi(address.substr(address.rfind(':') + 1), &port));
  sockaddr_in peer = {};
  peer.sin_family = AF_INET;
  peer.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  peer.sin_port = htons(static_cast<uint16_t>(port));
  for (Connection& connection : connections_) {
    connection.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    RUBATO_CHECK(connect(connection.fd, reinterpret_cast<sockaddr*>(&peer), sizeof peer) == 0);
    RUBATO_CHECK(fcntl(connection.fd, F_SETFL, O_NONBLOCK) == 0);
    connection.out = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + FrameOf(kSettings, 0, 0, "");
  }
}

UnfinishedCalls::~UnfinishedCalls() {
  for (const Connection& connection : connections_) close(connection.fd);
}

int64_t UnfinishedCalls::Send(const std::string& method, uint32_t calls) {
  for (Connection& connection : connections_) {
    for (uint32_t call = 1; call < 2 * calls; call += 2) {
      const std::string length = std::string(1, '\0') + BigEndian(kMessage, 4);
      connection.out += FrameOf(kHeaders, kEndHeaders, call, Headers(method));
      connection.out += FrameOf(kData, 0, call, length);
      connection.window -= static_cast<int64_t>(length.size());
      connection.windows[call] = kFirstWindow - static_cast<int64_t>(length.size());
      connection.left[call] = kMessage - kUnsent;
    }
  }
  while (!connections_.empty()) {
    std::vector<pollfd> polls;
    for (Connection& connection : connections_) {
      Fill(&connection);
      const int wanted = POLLIN | (connection.out.empty() ? 0 : POLLOUT);
      polls.push_back({connection.fd, static_cast<short>(wanted), 0});
    }
    RUBATO_CHECK(poll(polls.data(), polls.size(), /*milliseconds=*/60'000) > 0);
    for (size_t i = polls.size(); i-- > 0;) {
      if (polls[i].revents == 0 || Exchange(&connections_[i], polls[i].revents)) continue;
      close(connections_[i].fd);
      connections_.erase(connections_.begin() + static_cast<int64_t>(i));
    }
  }
  return taken_;
}

void UnfinishedCalls::Fill(Connection* connection) {
  for (auto& [call, window] : connection->windows) {
    int64_t& left = connection->left[call];
    while (connection->out.size() < 100'000) {
      const int64_t size = std::min({kMaxFrame, connection->window, window, left});
      if (size <= 0) break;
      connection->out += FrameOf(kData, 0, call, std::string(static_cast<size_t>(size), '\0'));
      connection->window -= size;
      window -= size;
      left -= size;
    }
  }
}

bool UnfinishedCalls::Exchange(Connection* connection, short events) {
  if ((events & POLLOUT) != 0) {
    std::string& out = connection->out;
    const ssize_t sent = send(connection->fd, out.data(), out.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    taken_ += sent;
    out.erase(0, static_cast<size_t>(sent));
  }
  if ((events & POLLIN) != 0) {
    char buffer[4096];
    const ssize_t got = recv(connection->fd, buffer, sizeof buffer, 0);
    if (got <= 0) return false;
    connection->in.append(buffer, static_cast<size_t>(got));
    Read(connection);
  }
  return (events & (POLLIN | POLLOUT)) != 0;
}

void UnfinishedCalls::Read(Connection* connection) const {
  std::string& in = connection->in;
  while (in.size() >= kFrameHeader) {
    const absl::string_view bytes = in;
    const size_t size = FromBigEndian(bytes.substr(0, 3));
    if (in.size() < kFrameHeader + size) return;
    const uint8_t kind = static_cast<uint8_t>(bytes[3]), flags = static_cast<uint8_t>(bytes[4]);
    const uint32_t call = FromBigEndian(bytes.substr(5, 4));
    const absl::string_view payload = bytes.substr(kFrameHeader, size);
    if (kind == kWindow && call == 0) connection->window += FromBigEndian(payload);
    if (kind == kWindow && call != 0) connection->windows[call] += FromBigEndian(payload);
    if (kind == kReset) connection->left[call] = 0;
    if (kind == kSettings && flags != kAck && acknowledges_) {
      connection->out += FrameOf(kSettings, kAck, 0, "");
    }
    if (kind == kPing && flags != kAck) connection->out += FrameOf(kPing, kAck, 0, payload);
    in.erase(0, kFrameHeader + size);
  }
}

}  // namespace rubato
