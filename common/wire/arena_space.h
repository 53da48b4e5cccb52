// The bookkeeping of SharedArena and SharedArenaView, as offsets without the memory itself: which
// parts of an arena are allocated, and how much of a peer's arena is resident. Single-threaded,
// without I/O.
#ifndef RUBATO_COMMON_WIRE_ARENA_SPACE_H_
#define RUBATO_COMMON_WIRE_ARENA_SPACE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace rubato {

// Lent pieces begin at a page and occupy whole pages, so that they can be mapped anywhere.
constexpr size_t kSharedPage = 4096;
// Smaller pieces are not lent: copying them is cheaper than tracking a loan.
constexpr size_t kMinLent = 8 << 10;
// Larger pieces are not lent either, so that a piece fits into a receiver's windows.
constexpr size_t kMaxLent = 2 << 20;

constexpr uint64_t RoundUp(uint64_t bytes, uint64_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

// The owner's side: consecutive slabs, which are never freed, and pieces of them. No piece crosses
// a slab boundary.
class ArenaSpace {
 public:
  // Address space is reserved in units of this size.
  static constexpr uint64_t kSlab = 64 << 20;

  struct Piece {
    uint64_t offset = 0;
    uint64_t bytes = 0;        // whole pages
    uint64_t slab_bytes = 0;   // above 0: of a new slab at `offset`, which Grow has to add first
    bool is_reserved = false;  // it has been taken before: its memory exists
  };

  // Where `bytes` may lie. It is free until it is taken.
  Piece Find(uint64_t bytes) const;
  void Grow(uint64_t slab_bytes);
  void Take(const Piece& piece);
  // The next request of the same size gets it.
  void GiveBack(const Piece& piece);

 private:
  uint64_t used_ = 0;                               // where the last slab is free
  uint64_t end_ = 0;                                // where it ends
  std::map<uint64_t, std::vector<uint64_t>> free_;  // offsets, by bytes
};

// The reader's side: memory that has been read stays resident until it exceeds `max_bytes`.
class ResidentBytes {
 public:
  explicit ResidentBytes(size_t max_bytes) : max_bytes_(max_bytes) {}

  // `bytes` at `offset` are about to be read. True if all that was read before has to be dropped
  // first.
  bool MustDropFor(uint64_t offset, size_t bytes);

 private:
  const size_t max_bytes_;
  absl::flat_hash_map<uint64_t, size_t> read_;  // bytes, by offset
  size_t total_ = 0;
};

}  // namespace rubato

#endif  // RUBATO_COMMON_WIRE_ARENA_SPACE_H_
