#include "common/wire/http2_opening.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/match.h"

namespace rubato {
namespace {

constexpr absl::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
// Length (3 bytes), type, flags, stream (4 bytes); numbers have their highest byte first.
constexpr size_t kFrameHeaderBytes = 9;
constexpr char kSettings = 4;
constexpr char kAck = 1;
constexpr char kMaxConcurrentStreams = 3;

}  // namespace

std::string FirstSettings(int max_calls) {
  const auto byte = [max_calls](int shift) {
    return static_cast<char>(static_cast<uint32_t>(max_calls) >> shift & 0xff);
  };
  const char frame[] = {
      0,        0,        6,       kSettings, 0, 0, 0, 0, 0, 0, kMaxConcurrentStreams,
      byte(24), byte(16), byte(8), byte(0)};
  return std::string(frame, sizeof frame);
}

Opening ReadOpening(absl::string_view bytes) {
  const absl::string_view all = bytes;
  if (!absl::StartsWith(bytes, kPreface.substr(0, bytes.size()))) return Opening::kNotHttp2;
  bytes.remove_prefix(std::min(bytes.size(), kPreface.size()));
  while (bytes.size() >= kFrameHeaderBytes) {
    const auto byte = [bytes](size_t at) { return static_cast<uint8_t>(bytes[at]); };
    const size_t length = size_t{byte(0)} << 16 | size_t{byte(1)} << 8 | byte(2);
    if (bytes[3] == kSettings && (bytes[4] & kAck) != 0) return Opening::kAcknowledged;
    bytes.remove_prefix(std::min(bytes.size(), kFrameHeaderBytes + length));
  }
  return all.size() < kMaxOpeningBytes ? Opening::kUnfinished : Opening::kTooLong;
}

}  // namespace rubato
