// Memory that two processes of one host share: two rings of bytes, one each way. It has no name in
// any file system and ends with the last process that maps it, however that dies.
#ifndef RUBATO_COMMON_WIRE_SHARED_SEGMENT_H_
#define RUBATO_COMMON_WIRE_SHARED_SEGMENT_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/wire/ring.h"
#include "common/wire/shared_arena.h"

namespace rubato {

// The words at a segment's beginning, each on cache lines of its own; bytes are counted from the
// segment's creation. A process trusts nothing of it that its peer writes.
struct SharedWords {
  std::atomic<uint64_t> magic;
  std::atomic<uint64_t> nonce;
  struct End {
    alignas(128) std::atomic<uint64_t> written;   // into the ring that this end writes
    alignas(128) std::atomic<uint64_t> read;      // of the ring that the other end writes
    alignas(128) std::atomic<uint32_t> sleeping;  // 1: wants to be woken (futex)
    // 1 + the number of the processor on which it last waited.
    alignas(128) std::atomic<int32_t> processor;
    // 1: takes frames whose payload lies in the other end's SharedArena.
    alignas(128) std::atomic<uint32_t> borrows;
    // Of its own arena, from before the other end begins; empty: it has none.
    char offer[SharedArena::kMaxOffer];
    // By the number of a loan: 1 when what the other end lent has been given back.
    alignas(128) std::atomic<uint8_t> given_back[kMaxLoans];
  };
  End ends[2];  // the creator, the opener
};

class SharedSegment {
 public:
  // Of each ring. Eight messages of 256 KiB: enough to work side by side, and little enough to stay
  // in the last-level cache.
  static constexpr size_t kRingBytes = 2 << 20;

  // The creator's end. ResourceExhausted if the memory cannot be had, all of it, now.
  static absl::StatusOr<std::unique_ptr<SharedSegment>> Create(size_t ring_bytes = kRingBytes);
  // What another process of this host needs to open it.
  std::string Offer() const;

  // Offers this end's arena to the other: the creator before it offers the segment, the opener
  // before it says that it has opened it.
  void Lend(const SharedArena& arena);
  // The other's; an offer that cannot be opened if there is none.
  std::string LentByPeer() const;

  // The opener's end. Unavailable, saying why, if the offer is of another host, has rings of
  // another size, which might not hold a frame, or cannot be opened from here.
  static absl::StatusOr<std::unique_ptr<SharedSegment>> Open(absl::string_view offer,
                                                             size_t ring_bytes = kRingBytes);
  // Whether Open failed because the offer comes from another host.
  static bool IsFromAnotherHost(const absl::Status& status);

  ~SharedSegment();
  SharedSegment(const SharedSegment&) = delete;

  SharedWords* words() const { return words_; }
  int end() const { return end_; }          // which this is
  int creator() const { return creator_; }  // process
  size_t ring_bytes() const { return ring_bytes_; }
  // The ring that end `end` writes. It is mapped twice in a row, so that any run of up to
  // ring_bytes() is contiguous.
  char* ring(int end) const { return rings_[end]; }

 private:
  SharedSegment() = default;
  absl::Status Map(size_t ring_bytes);

  int fd_ = -1;
  int end_ = 0;
  int creator_ = 0;
  size_t ring_bytes_ = 0;
  SharedWords* words_ = nullptr;
  char* rings_[2] = {nullptr, nullptr};
};

}  // namespace rubato

#endif  // RUBATO_COMMON_WIRE_SHARED_SEGMENT_H_
