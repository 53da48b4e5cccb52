#include "common/wire/ring.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status.h"

namespace rubato {

absl::StatusOr<RingFrame> ReadRingFrame(const char* at, uint64_t available, uint64_t ring_bytes) {
  if (available < kRingHeader || available > ring_bytes) {
    return absl::InvalidArgumentError(
        absl::StrFormat("in shared memory the peer claims to have written %d bytes", available));
  }
  uint8_t header[kFrameHeaderBytes];
  RingFrame found;
  std::memcpy(header, at, sizeof(header));
  std::memcpy(&found.loan, at + sizeof(header), sizeof(found.loan));
  RUBATO_ASSIGN_OR_RETURN(found.frame, DecodeFrame(header));
  const uint64_t payload = found.frame.payload_bytes;
  found.bytes = found.is_lent() ? kRingHeader : RingBytes(payload);
  if (found.is_lent() ? found.loan.offset % kRingLine != 0 || found.loan.number >= kMaxLoans ||
                            payload < kMinLent || payload > kMaxLent
                      : found.bytes > available) {
    return absl::InvalidArgumentError(
        absl::StrFormat("in shared memory a frame has a payload of %d bytes", payload) +
        (found.is_lent() ? absl::StrFormat(" at %d, which is not lent", found.loan.offset)
                         : absl::StrFormat("; %d bytes are there", available)));
  }
  return found;
}

bool RingWriter::HasRoom(uint64_t payload_bytes, bool lends, uint64_t read) {
  const uint64_t taken = written_ - read;
  const uint64_t bytes = lends ? kRingHeader : RingBytes(payload_bytes);
  if (taken > ring_bytes_ || ring_bytes_ - taken < bytes) return false;
  while (!unread_.empty() && unread_.front().end <= read) {
    unread_bytes_ -= unread_.front().bytes;
    unread_.pop_front();
  }
  return !lends || unread_bytes_ < kMaxUnread;
}

void RingWriter::WriteLent(const Payload& payload) {
  written_ += kRingHeader;
  lent_.push_back(payload.owner);
  unread_.push_back({written_, payload.bytes.size()});
  unread_bytes_ += payload.bytes.size();
}

}  // namespace rubato
