#include "common/wire/arena_space.h"

#include <algorithm>

namespace rubato {

ArenaSpace::Piece ArenaSpace::Find(uint64_t bytes) const {
  Piece piece;
  piece.bytes = RoundUp(std::max<uint64_t>(bytes, 1), kSharedPage);
  const auto free = free_.find(piece.bytes);
  if (free != free_.end() && !free->second.empty()) {
    piece.offset = free->second.back();
    piece.is_reserved = true;
  } else if (end_ - used_ >= piece.bytes) {
    piece.offset = used_;
  } else {
    piece.offset = end_;
    piece.slab_bytes = RoundUp(piece.bytes, kSlab);
  }
  return piece;
}

void ArenaSpace::Grow(uint64_t slab_bytes) {
  used_ = end_;
  end_ += slab_bytes;
}

void ArenaSpace::Take(const Piece& piece) {
  if (piece.is_reserved) {
    free_[piece.bytes].pop_back();
  } else {
    used_ = piece.offset + piece.bytes;
  }
}

void ArenaSpace::GiveBack(const Piece& piece) { free_[piece.bytes].push_back(piece.offset); }

bool ResidentBytes::MustDropFor(uint64_t offset, size_t bytes) {
  size_t& read = read_[offset];
  if (bytes > read) {
    total_ += bytes - read;
    read = bytes;
  }
  if (total_ <= max_bytes_) return false;
  read_ = {{offset, bytes}};
  total_ = bytes;
  return true;
}

}  // namespace rubato
