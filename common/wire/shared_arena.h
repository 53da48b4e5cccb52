// Memory of a process that other processes of its host may read, so that it can be sent without a
// copy. It has no name in any file system and is freed when the last process that maps it ends.
#ifndef RUBATO_COMMON_WIRE_SHARED_ARENA_H_
#define RUBATO_COMMON_WIRE_SHARED_ARENA_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "common/wire/arena_space.h"

namespace rubato {

// Its owner's end. Any thread.
class SharedArena : public std::enable_shared_from_this<SharedArena> {
 public:
  // ResourceExhausted if there is no such memory. Later it takes what Allocate asks for.
  static absl::StatusOr<std::shared_ptr<SharedArena>> Create();
  ~SharedArena();
  SharedArena(const SharedArena&) = delete;

  // Allocates `bytes` of uninitialised, page-aligned memory, which is committed at once. When the
  // last share is gone, the next allocation of the same size reuses it. Null if there is no memory.
  // New memory takes long to commit, but does not block other threads.
  std::shared_ptr<char> Allocate(size_t bytes) ABSL_LOCKS_EXCLUDED(mutex_);

  // What another process of this host needs to open it: at most kMaxOffer bytes.
  std::string Offer() const;
  static constexpr size_t kMaxOffer = 64;

  // Where `bytes`, if they lie in it, are.
  std::optional<uint64_t> Find(absl::Span<const char> bytes) const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Slab {
    char* begin;
    uint64_t offset, size;
  };

  SharedArena() = default;
  // A place for `bytes`, from now on taken; null with errno set if there is none.
  char* Take(size_t bytes, ArenaSpace::Piece* piece) ABSL_LOCKS_EXCLUDED(mutex_);
  bool AddSlab(uint64_t offset, uint64_t size) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  char* At(uint64_t offset) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  int fd_ = -1;
  uint64_t nonce_ = 0;
  mutable absl::Mutex mutex_;
  std::vector<Slab> slabs_ ABSL_GUARDED_BY(mutex_);  // one behind the other
  ArenaSpace space_ ABSL_GUARDED_BY(mutex_);
};

// Another process's end, which reads. It trusts nothing that the owner says.
class SharedArenaView {
 public:
  // Resident of what At has given: so a server's memory does not grow with what workers lend.
  static constexpr size_t kMaxResident = 8 << 20;
  // Windows onto an arena of up to 256 GiB: the system bounds a process's mappings.
  static constexpr size_t kMaxWindows = 4096;

  // Unavailable, saying why, if the offer cannot be opened from here.
  static absl::StatusOr<std::shared_ptr<SharedArenaView>> Open(absl::string_view offer);
  ~SharedArenaView();
  SharedArenaView(const SharedArenaView&) = delete;

  // The `bytes` at `offset`, kMaxLent at most; null if the arena does not hold them. By one thread
  // at a time. The owner may change them at any time.
  const char* At(uint64_t offset, size_t bytes);

  // Maps the memory that At has returned also at `place`, a page of the caller's memory, replacing
  // its contents. Any thread. False if that fails; then the contents at `place` are undefined.
  bool MapTo(char* place, uint64_t offset, size_t bytes) const;

 private:
  SharedArenaView() = default;

  int fd_ = -1;
  uint64_t size_ = 0;                             // which the arena has, at least
  absl::flat_hash_map<uint64_t, char*> windows_;  // by number
  ResidentBytes resident_{kMaxResident};
};

}  // namespace rubato

#endif  // RUBATO_COMMON_WIRE_SHARED_ARENA_H_
