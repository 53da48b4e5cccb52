#include "common/wire/shared_arena.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <iterator>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "common/base/entropy.h"
#include "common/base/status.h"
#include "common/wire/memory_file.h"

namespace rubato {
namespace {

constexpr char kName[] = "lent-rubato";

// The owner must not shrink what is mapped here: reading beyond the end would be fatal.
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_SEAL;

// A window of a view begins at a multiple of half its size, so that whatever begins in its first
// half is in it.
constexpr uint64_t kHalfWindow = 64 << 20;
static_assert(kMaxLent <= kHalfWindow);

// At the arena's beginning: that it is the one of the offer.
struct Label {
  uint64_t magic;
  uint64_t nonce;
};
constexpr uint64_t kMagic = 0x31746e656c627552;  // "Rublent1"

absl::Status NoMemory() {
  return absl::ResourceExhaustedError(
      absl::StrCat("there is no memory to lend: ", std::strerror(errno)));
}

absl::Status CannotOpen(absl::string_view why) {
  return absl::UnavailableError(absl::StrCat("the peer's memory cannot be opened: ", why));
}

}  // namespace

absl::StatusOr<std::shared_ptr<SharedArena>> SharedArena::Create() {
  std::shared_ptr<SharedArena> arena(new SharedArena);
  arena->fd_ = memfd_create(kName, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (arena->fd_ < 0 || fcntl(arena->fd_, F_ADD_SEALS, kSeals) != 0) return NoMemory();
  arena->nonce_ = DrawEntropy();
  ArenaSpace::Piece piece;
  char* const begin = arena->Take(sizeof(Label), &piece);
  if (begin == nullptr) return NoMemory();
  const Label label = {kMagic, arena->nonce_};
  std::memcpy(begin, &label, sizeof(label));
  return arena;
}

SharedArena::~SharedArena() {
  absl::MutexLock lock(&mutex_);
  for (const Slab& slab : slabs_) munmap(slab.begin, slab.size);
  if (fd_ >= 0) close(fd_);
}

bool SharedArena::AddSlab(uint64_t offset, uint64_t size) {
  if (ftruncate(fd_, static_cast<off_t>(offset + size)) != 0) return false;
  void* begin =
      mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, static_cast<off_t>(offset));
  if (begin == MAP_FAILED) return false;
  slabs_.push_back({static_cast<char*>(begin), offset, size});
  return true;
}

char* SharedArena::At(uint64_t offset) const {
  const auto behind =
      std::upper_bound(slabs_.begin(), slabs_.end(), offset,
                       [](uint64_t offset, const Slab& slab) { return offset < slab.offset; });
  return std::prev(behind)->begin + (offset - std::prev(behind)->offset);
}

char* SharedArena::Take(size_t bytes, ArenaSpace::Piece* piece) {
  char* place = nullptr;
  {
    absl::MutexLock lock(&mutex_);
    *piece = space_.Find(bytes);
    if (piece->slab_bytes > 0) {
      if (!AddSlab(piece->offset, piece->slab_bytes)) return nullptr;
      space_.Grow(piece->slab_bytes);
    }
    space_.Take(*piece);
    place = At(piece->offset);
  }
  if (piece->is_reserved) return place;
  // Now, and not by a fatal signal at the first write. A place that gets no memory is lost.
  errno = ReserveMemory(fd_, piece->offset, piece->bytes);
  return errno == 0 ? place : nullptr;
}

std::shared_ptr<char> SharedArena::Allocate(size_t bytes) {
  ArenaSpace::Piece piece;
  char* const place = Take(bytes, &piece);
  if (place == nullptr) return nullptr;
  return {place, [arena = shared_from_this(), piece](char*) {
            absl::MutexLock lock(&arena->mutex_);
            arena->space_.GiveBack(piece);
          }};
}

std::string SharedArena::Offer() const {
  return absl::StrFormat("%d %d %d", getpid(), fd_, nonce_);
}

std::optional<uint64_t> SharedArena::Find(absl::Span<const char> bytes) const {
  absl::MutexLock lock(&mutex_);
  for (const Slab& slab : slabs_) {
    if (bytes.data() >= slab.begin && bytes.data() + bytes.size() <= slab.begin + slab.size) {
      return slab.offset + static_cast<uint64_t>(bytes.data() - slab.begin);
    }
  }
  return std::nullopt;
}

absl::StatusOr<std::shared_ptr<SharedArenaView>> SharedArenaView::Open(absl::string_view offer) {
  const std::vector<absl::string_view> parts = absl::StrSplit(offer, ' ');
  int pid, fd;
  uint64_t nonce;
  if (parts.size() != 3 || !absl::SimpleAtoi(parts[0], &pid) || !absl::SimpleAtoi(parts[1], &fd) ||
      !absl::SimpleAtoi(parts[2], &nonce)) {
    return CannotOpen("its offer is not understood");
  }
  const std::string path = DescriptorPath(pid, fd);
  const absl::StatusOr<int> file = OpenMemoryFile(path, kName, O_RDONLY, F_SEAL_SHRINK);
  if (!file.ok()) return CannotOpen(file.status().message());
  std::shared_ptr<SharedArenaView> view(new SharedArenaView);
  view->fd_ = *file;
  Label label;
  const char* const begin = view->At(0, sizeof(label));
  if (begin == nullptr) return CannotOpen(absl::StrCat(path, " cannot be mapped (ulimit -v?)"));
  std::memcpy(&label, begin, sizeof(label));
  if (label.magic != kMagic || label.nonce != nonce) {
    return CannotOpen(absl::StrCat(path, " is of another process (another container?)"));
  }
  return view;
}

SharedArenaView::~SharedArenaView() {
  for (const auto& [number, window] : windows_) munmap(window, 2 * kHalfWindow);
  if (fd_ >= 0) close(fd_);
}

const char* SharedArenaView::At(uint64_t offset, size_t bytes) {
  if (bytes > kMaxLent) return nullptr;
  if (offset > size_ || bytes > size_ - offset) {  // it may have grown
    struct stat status;
    if (fstat(fd_, &status) != 0) return nullptr;
    size_ = static_cast<uint64_t>(status.st_size);
    if (offset > size_ || bytes > size_ - offset) return nullptr;
  }
  if (resident_.MustDropFor(offset, bytes)) {
    // Pages that are read again are mapped again, some at a time; their values stay.
    for (const auto& [number, window] : windows_) madvise(window, 2 * kHalfWindow, MADV_DONTNEED);
  }
  const uint64_t number = offset / kHalfWindow;
  if (windows_.size() == kMaxWindows && windows_.count(number) == 0) return nullptr;
  char*& window = windows_[number];
  if (window == nullptr) {
    void* begin = mmap(nullptr, 2 * kHalfWindow, PROT_READ, MAP_SHARED, fd_,
                       static_cast<off_t>(number * kHalfWindow));
    if (begin == MAP_FAILED) {
      windows_.erase(number);
      return nullptr;
    }
    window = static_cast<char*>(begin);
  }
  return window + offset % kHalfWindow;
}

bool SharedArenaView::MapTo(char* place, uint64_t offset, size_t bytes) const {
  return mmap(place, bytes, PROT_READ, MAP_SHARED | MAP_FIXED, fd_, static_cast<off_t>(offset)) !=
         MAP_FAILED;
}

}  // namespace rubato
