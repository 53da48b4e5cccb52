// Frames in the ring of a shared segment, and the decisions of the end that writes them: whether a
// frame has room, whether its payload is lent, and when lent memory is free again. Single-threaded
// and without I/O: SharedLink reads the peer's words and writes the frames.
#ifndef RUBATO_COMMON_WIRE_RING_H_
#define RUBATO_COMMON_WIRE_RING_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "common/frames/frame.h"
#include "common/frames/payload.h"
#include "common/wire/arena_space.h"

namespace rubato {

// A frame's header and payload each begin on a cache line.
constexpr uint64_t kRingLine = 64;
constexpr uint64_t kRingHeader = 128;

// Loans that are out at a time: of 4 GiB of parameters.
constexpr uint32_t kMaxLoans = 16384;

// Follows a frame's header in place of a payload that is lent.
struct LoanWords {
  uint64_t offset;  // in the sender's arena
  uint32_t number;  // of the loan
  uint32_t is_lent;
};
static_assert(kFrameHeaderBytes + sizeof(LoanWords) <= kRingHeader);

// What a frame takes of the ring.
constexpr uint64_t RingBytes(uint64_t payload_bytes) {
  return kRingHeader + RoundUp(payload_bytes, kRingLine);
}

// A frame as it stands in a ring, copied out of it once: the peer could change it.
struct RingFrame {
  Frame frame;
  LoanWords loan;
  uint64_t bytes = 0;  // of the ring

  bool is_lent() const { return loan.is_lent != 0; }
};

// The frame at `at`, of a ring of `ring_bytes` in which the peer claims to have written `available`
// bytes from there on, more than 0. Nothing that it says is trusted: InvalidArgument if that cannot
// be. Where a loan lies is for the arena to check.
absl::StatusOr<RingFrame> ReadRingFrame(const char* at, uint64_t available, uint64_t ring_bytes);

class RingWriter {
 public:
  // The most lent bytes that the peer has not reached yet, because more urgent frames cannot
  // overtake those in the ring. Equal to a stream's window over TCP.
  static constexpr uint64_t kMaxUnread = 4 << 20;

  explicit RingWriter(uint64_t ring_bytes) : ring_bytes_(ring_bytes) {}

  uint64_t written() const { return written_; }
  // Whether a payload may be lent, if it lies in an arena and another loan may go out.
  static bool MayLend(const Payload& payload) {
    return payload.may_lend && payload.bytes.size() >= kMinLent && payload.bytes.size() <= kMaxLent;
  }
  bool HasLoan() const { return lent_.size() < kMaxLoans; }
  // Whether a frame with a payload of `payload_bytes` may be written now; the peer claims to have
  // read up to `read`.
  bool HasRoom(uint64_t payload_bytes, bool lends, uint64_t read);

  // A frame is written at written(), which has room for it.
  void Write(uint64_t payload_bytes) { written_ += RingBytes(payload_bytes); }
  // The number that a loan written now has.
  uint32_t next_loan() const {
    return static_cast<uint32_t>((first_loan_ + lent_.size()) % kMaxLoans);
  }
  // Likewise of one whose payload is lent: its owner is kept until it has been given back.
  void WriteLent(const Payload& payload);

  // The peer returns loans in any order; numbers and owners are freed in the order of lending, as
  // long as `is_back(number)`.
  template <typename IsBack>
  void TakeBack(IsBack is_back) {
    while (!lent_.empty() && is_back(static_cast<uint32_t>(first_loan_ % kMaxLoans))) {
      lent_.pop_front();
      ++first_loan_;
    }
  }

 private:
  // Of what is lent and the peer has not come to yet: where its frame ends in the ring, and bytes.
  struct Unread {
    uint64_t end, bytes;
  };

  const uint64_t ring_bytes_;
  uint64_t written_ = 0;
  // Owners of what the peer may be reading, by number of the loan from `first_loan_` on.
  std::deque<std::shared_ptr<const void>> lent_;
  uint64_t first_loan_ = 0;
  std::deque<Unread> unread_;
  uint64_t unread_bytes_ = 0;
};

}  // namespace rubato

#endif  // RUBATO_COMMON_WIRE_RING_H_
