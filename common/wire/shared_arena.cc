#include "common/wire/shared_arena.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "common/base/status.h"
#include "common/wire/memory_file.h"

namespace rubato {
namespace {

constexpr char kName[] = "lent-rubato";

// The owner must not shrink what is mapped here: reading beyond the end would be fatal.
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_SEAL;

// Address space is taken by so much, memory as it is allocated.
constexpr uint64_t kSlab = 64 << 20;

// A window of a view begins at a multiple of half its size, so that whatever begins in its first
// half is in it.
constexpr uint64_t kHalfWindow = kSlab;
static_assert(SharedArenaView::kMostBytes <= kHalfWindow);

// At the arena's beginning: that it is the one of the offer.
struct Label {
  uint64_t magic;
  uint64_t nonce;
};
constexpr uint64_t kMagic = 0x31746e656c627552;  // "Rublent1"

uint64_t RoundUp(uint64_t bytes, uint64_t unit) { return (bytes + unit - 1) / unit * unit; }

absl::Status CannotOpen(absl::string_view why) {
  return absl::UnavailableError(absl::StrCat("the peer's memory cannot be opened: ", why));
}

}  // namespace

absl::StatusOr<std::shared_ptr<SharedArena>> SharedArena::Create() {
  std::shared_ptr<SharedArena> arena(new SharedArena);
  arena->fd_ = memfd_create(kName, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (arena->fd_ < 0 || fcntl(arena->fd_, F_ADD_SEALS, kSeals) != 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("memory to lend cannot be had: ", std::strerror(errno)));
  }
  std::random_device random;
  arena->nonce_ = uint64_t{random()} << 32 | random();
  absl::MutexLock lock(&arena->mutex_);
  RUBATO_RETURN_IF_ERROR(arena->AddSlab(kSlab));
  if (const int error = ReserveMemory(arena->fd_, 0, kSharedPage); error != 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("memory to lend cannot be had: ", std::strerror(error)));
  }
  const Label label = {kMagic, arena->nonce_};
  std::memcpy(arena->slabs_[0].begin, &label, sizeof(label));
  arena->used_ = kSharedPage;
  return arena;
}

SharedArena::~SharedArena() {
  absl::MutexLock lock(&mutex_);
  for (const Slab& slab : slabs_) munmap(slab.begin, slab.size);
  if (fd_ >= 0) close(fd_);
}

absl::Status SharedArena::AddSlab(uint64_t size) {
  const uint64_t offset = slabs_.empty() ? 0 : slabs_.back().offset + slabs_.back().size;
  const auto failed = [] {
    return absl::ResourceExhaustedError(
        absl::StrCat("memory to lend cannot be had: ", std::strerror(errno)));
  };
  if (ftruncate(fd_, static_cast<off_t>(offset + size)) != 0) return failed();
  void* begin =
      mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, static_cast<off_t>(offset));
  if (begin == MAP_FAILED) return failed();
  slabs_.push_back({static_cast<char*>(begin), offset, size});
  used_ = 0;
  return absl::OkStatus();
}

std::shared_ptr<char> SharedArena::Allocate(size_t bytes) {
  const uint64_t size = RoundUp(std::max<uint64_t>(bytes, 1), kSharedPage);
  char* place = nullptr;
  {
    absl::MutexLock lock(&mutex_);
    std::vector<char*>& free = free_[size];
    if (!free.empty()) {
      place = free.back();
      free.pop_back();
    } else {
      if (slabs_.back().size - used_ < size && !AddSlab(RoundUp(size, kSlab)).ok()) return nullptr;
      const Slab& slab = slabs_.back();
      // Now, and not by a fatal signal at the first write.
      if (ReserveMemory(fd_, slab.offset + used_, size) != 0) return nullptr;
      place = slab.begin + used_;
      used_ += size;
    }
  }
  return {place, [arena = shared_from_this(), size](char* begin) {
            absl::MutexLock lock(&arena->mutex_);
            arena->free_[size].push_back(begin);
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
  if (begin != nullptr) std::memcpy(&label, begin, sizeof(label));
  if (begin == nullptr || label.magic != kMagic || label.nonce != nonce) {
    return CannotOpen(absl::StrCat(path, " is of another process (another container?)"));
  }
  return view;
}

SharedArenaView::~SharedArenaView() {
  for (const auto& [number, window] : windows_) munmap(window, 2 * kHalfWindow);
  if (fd_ >= 0) close(fd_);
}

const char* SharedArenaView::At(uint64_t offset, size_t bytes) {
  if (bytes > kMostBytes) return nullptr;
  if (offset > size_ || bytes > size_ - offset) {  // it may have grown
    struct stat status;
    if (fstat(fd_, &status) != 0) return nullptr;
    size_ = static_cast<uint64_t>(status.st_size);
    if (offset > size_ || bytes > size_ - offset) return nullptr;
  }
  size_t& given = given_[offset];
  if (bytes > given) {
    given_bytes_ += bytes - given;
    given = bytes;
  }
  if (given_bytes_ > kMostResident) {
    // Pages that are read again are mapped again, some at a time; their values stay.
    for (const auto& [number, window] : windows_) madvise(window, 2 * kHalfWindow, MADV_DONTNEED);
    given_ = {{offset, bytes}};
    given_bytes_ = bytes;
  }
  const uint64_t number = offset / kHalfWindow;
  if (windows_.size() == kMostWindows && windows_.count(number) == 0) return nullptr;
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
