#include "worker/script/script_channel.h"

#include <fcntl.h>
#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/bytes.h"
#include "common/base/json.h"
#include "common/base/status.h"

namespace rubato {
namespace {

constexpr int64_t kPage = 4096;

}  // namespace

ScriptChannel::ScriptChannel(int socket, int memory) : socket_(socket), memory_(memory) {
  const char* const path = std::getenv(kStageVariable);
  stage_file_ = path == nullptr ? -1 : open(path, O_WRONLY | O_CLOEXEC);
}

ScriptChannel::~ScriptChannel() {
  if (stage_file_ >= 0) close(stage_file_);
  if (mapped_ != nullptr) munmap(mapped_, static_cast<size_t>(kRegions * region_bytes_));
  close(socket_);
  close(memory_);
}

absl::Status ScriptChannel::ReadBytes(char* to, size_t size) {
  while (size > 0) {
    const ssize_t count = recv(socket_, to, size, 0);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return absl::UnavailableError("the script has ended");
    to += count;
    size -= static_cast<size_t>(count);
  }
  return absl::OkStatus();
}

absl::StatusOr<nlohmann::json> ScriptChannel::Read() {
  unsigned char length[4];
  RUBATO_RETURN_IF_ERROR(ReadBytes(reinterpret_cast<char*>(length), sizeof(length)));
  const uint32_t size = length[0] | length[1] << 8 | length[2] << 16 | uint32_t{length[3]} << 24;
  if (size > kMaxFrame) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "the script sent a frame of %d bytes, expected at most %d", size, kMaxFrame));
  }
  std::string text(size, '\0');
  RUBATO_RETURN_IF_ERROR(ReadBytes(text.data(), size));
  nlohmann::json frame = ParseJson(text);
  if (!frame.is_object()) {
    return absl::InvalidArgumentError("the script sent a frame that is no JSON object");
  }
  return frame;
}

void ScriptChannel::Write(const nlohmann::json& frame) {
  const std::string text = JsonText(frame);
  const std::string bytes = absl::StrCat(LittleEndian(text.size(), 4), text);
  absl::MutexLock lock(&mutex_);
  for (size_t sent = 0; sent < bytes.size();) {
    const ssize_t count = send(socket_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return;
    sent += static_cast<size_t>(count);
  }
}

void ScriptChannel::Note(ScriptStage stage) {
  absl::MutexLock lock(&mutex_);
  if (!is_noted_ || stage_file_ < 0 || stage == stage_) return;
  stage_ = stage;
  const auto byte = static_cast<unsigned char>(stage);
  (void)!pwrite(stage_file_, &byte, 1, 0);
}

void ScriptChannel::EndNotes() {
  absl::MutexLock lock(&mutex_);
  is_noted_ = false;
}

void ScriptChannel::AwaitRead() const {
  constexpr int kPoll = 20;                  // ms
  pollfd peer = {socket_, /*events=*/0, 0};  // only whether it has closed its end
  int unread = 0;                            // bytes, by the peer
  while (ioctl(socket_, SIOCOUTQ, &unread) == 0 && unread > 0 && poll(&peer, 1, kPoll) <= 0) {
  }
}

void ScriptChannel::EndReading() { shutdown(socket_, SHUT_RD); }

absl::Status ScriptChannel::Map(int64_t values) {
  values_ = values;
  region_bytes_ = (values * static_cast<int64_t>(sizeof(float)) + kPage - 1) / kPage * kPage;
  struct stat status = {};
  const int64_t bytes = kRegions * region_bytes_;
  if (fstat(memory_, &status) != 0 || status.st_size < bytes) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "the script shares %d bytes, expected %d for %d values", status.st_size, bytes, values));
  }
  void* const mapped =
      mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, memory_, 0);
  if (mapped == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot map the memory of the script: ", std::strerror(errno)));
  }
  mapped_ = static_cast<char*>(mapped);
  return absl::OkStatus();
}

absl::Span<float> ScriptChannel::Region(int index) const {
  return {reinterpret_cast<float*>(mapped_ + index * region_bytes_), static_cast<size_t>(values_)};
}

}  // namespace rubato
