#include "tests/raw_call.h"

#include <arpa/inet.h>
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/time/clock.h"
#include "common/base/check.h"
#include "common/wire/channel.h"
#include "common/wire/control_methods.h"
#include "common/wire/stream_opening.h"
#include "tests/process.h"

namespace rubato {

RawCall::RawCall(const std::string& address, const std::string& method,
                 const std::map<std::string, std::string>& metadata, bool compressed)
    : stub_(MakeChannel(address, ConnectionOptions())) {
  for (const auto& [key, value] : metadata) context_.AddMetadata(key, value);
  if (compressed) context_.set_compression_algorithm(GRPC_COMPRESS_GZIP);
  context_.set_deadline(absl::ToChronoTime(absl::Now() + kTestPatience));
  call_ = stub_.PrepareCall(&context_, method, &queue_);
  call_->StartCall(nullptr);
  Await();  // a call that could not begin shows in its status
  if (method != kDataMethod && method != kJoinMethod) return;
  // As every peer: before that the server takes nothing long (common/wire/connections.h).
  call_->ReadInitialMetadata(nullptr);
  Await();
}

RawCall::~RawCall() {
  if (!finished_) {
    context_.TryCancel();
    grpc::Status status;
    call_->Finish(&status, nullptr);
    Await();
  }
  queue_.Shutdown();
  void* tag;
  bool ok;
  while (queue_.Next(&tag, &ok)) {
  }
}

bool RawCall::Await() {
  void* tag;
  bool ok = false;
  RUBATO_CHECK(queue_.Next(&tag, &ok));
  return ok;
}

bool RawCall::Write(absl::string_view bytes) {
  const grpc::Slice slice(bytes.data(), bytes.size());
  call_->Write(grpc::ByteBuffer(&slice, 1), nullptr);
  return Await();
}

bool RawCall::Read(std::string* bytes) {
  grpc::ByteBuffer buffer;
  call_->Read(&buffer, nullptr);
  if (!Await()) return false;
  grpc::Slice slice;
  RUBATO_CHECK(buffer.DumpToSingleSlice(&slice).ok());
  bytes->assign(reinterpret_cast<const char*>(slice.begin()), slice.size());
  return true;
}

grpc::Status RawCall::Finish() {
  call_->WritesDone(nullptr);
  Await();
  std::string ignored;
  while (Read(&ignored)) {
  }
  grpc::Status status;
  call_->Finish(&status, nullptr);
  Await();
  finished_ = true;
  return status;
}

grpc::Status SendAll(const std::string& address, const std::string& method,
                     const std::map<std::string, std::string>& metadata,
                     const std::vector<std::string>& messages) {
  RawCall call(address, method, metadata);
  for (const std::string& message : messages) {
    if (!call.Write(message)) break;
  }
  return call.Finish();
}

bool IsClosedAfter(const std::string& address, absl::string_view bytes) {
  const size_t colon = address.rfind(':');
  int port = 0;
  RUBATO_CHECK(absl::SimpleAtoi(address.substr(colon + 1), &port));
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in peer = {};
  peer.sin_family = AF_INET;
  peer.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  peer.sin_port = htons(static_cast<uint16_t>(port));
  const timeval patience = absl::ToTimeval(kTestPatience);
  RUBATO_CHECK(fd >= 0 &&
               setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0 &&
               setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience) == 0 &&
               connect(fd, reinterpret_cast<sockaddr*>(&peer), sizeof peer) == 0);
  while (!bytes.empty()) {
    const ssize_t sent = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) break;  // closed in the middle of it
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  char buffer[4096];
  ssize_t got;
  do {
    got = recv(fd, buffer, sizeof buffer, 0);
  } while (got > 0);
  const bool closed = got == 0 || errno == ECONNRESET;
  close(fd);
  return closed;
}

}  // namespace rubato
