#include "common/wire/shared_segment.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "common/base/boot_id.h"
#include "common/base/check.h"
#include "common/base/entropy.h"
#include "common/base/status.h"
#include "common/wire/memory_file.h"

namespace rubato {
namespace {

constexpr uint64_t kMagic = 0x32676e6972627552;  // "Rubring2"
constexpr char kName[] = "rubato";
constexpr size_t kWordsBytes = RoundUp(sizeof(SharedWords), kSharedPage);
static_assert(std::atomic<uint64_t>::is_always_lock_free &&
              std::atomic<uint32_t>::is_always_lock_free);

// The peer must not shrink what is mapped here: reading beyond the end would be fatal.
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

constexpr char kOtherHost[] = "the worker is on another host";

absl::Status CannotOpen(absl::string_view why) {
  return absl::UnavailableError(
      absl::StrCat("the worker's memory cannot be opened from the server's process: ", why));
}

}  // namespace

absl::StatusOr<std::unique_ptr<SharedSegment>> SharedSegment::Create(size_t ring_bytes) {
  std::unique_ptr<SharedSegment> segment(new SharedSegment);
  const size_t bytes = kWordsBytes + 2 * ring_bytes;
  const auto failed = [&](int error) {
    return absl::ResourceExhaustedError(absl::StrFormat(
        "%d bytes of memory to share cannot be had: %s", bytes, std::strerror(error)));
  };
  segment->fd_ = memfd_create(kName, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (segment->fd_ < 0) return failed(errno);
  // Now, and not by a fatal signal at the first write.
  if (const int error = ReserveMemory(segment->fd_, 0, bytes); error != 0) {
    return failed(error);
  }
  if (fcntl(segment->fd_, F_ADD_SEALS, kSeals) != 0) return failed(errno);
  RUBATO_RETURN_IF_ERROR(segment->Map(ring_bytes));
  segment->words_->nonce = DrawEntropy();
  segment->creator_ = getpid();
  segment->words_->magic = kMagic;
  return segment;
}

std::string SharedSegment::Offer() const {
  return absl::StrFormat("%s %d %d %d %d", BootId(), getpid(), fd_, ring_bytes_,
                         words_->nonce.load());
}

void SharedSegment::Lend(const SharedArena& arena) {
  const std::string offer = arena.Offer();
  RUBATO_CHECK(offer.size() < SharedArena::kMaxOffer);
  std::memcpy(words_->ends[end_].offer, offer.c_str(), offer.size() + 1);
}

std::string SharedSegment::LentByPeer() const {
  char offer[SharedArena::kMaxOffer];
  std::memcpy(offer, words_->ends[1 - end_].offer, sizeof(offer));  // once: it could change
  offer[sizeof(offer) - 1] = 0;
  return offer;
}

absl::StatusOr<std::unique_ptr<SharedSegment>> SharedSegment::Open(absl::string_view offer,
                                                                   size_t ring_bytes) {
  const std::vector<absl::string_view> parts = absl::StrSplit(offer, ' ');
  int pid, fd;
  uint64_t offered, nonce;
  if (parts.size() != 5 || !absl::SimpleAtoi(parts[1], &pid) || !absl::SimpleAtoi(parts[2], &fd) ||
      !absl::SimpleAtoi(parts[3], &offered) || !absl::SimpleAtoi(parts[4], &nonce)) {
    return absl::UnavailableError("the offer of shared memory is not understood");
  }
  if (parts[0] != BootId()) return absl::UnavailableError(kOtherHost);
  if (offered != ring_bytes) {
    return absl::UnavailableError(absl::StrFormat(
        "the worker offers to share rings of %d bytes, expected %d", offered, ring_bytes));
  }
  const std::string path = DescriptorPath(pid, fd);
  const absl::StatusOr<int> file = OpenMemoryFile(path, kName, O_RDWR, kSeals);
  if (!file.ok()) return CannotOpen(file.status().message());
  std::unique_ptr<SharedSegment> segment(new SharedSegment);
  segment->end_ = 1;
  segment->creator_ = pid;
  segment->fd_ = *file;
  struct stat status;
  if (fstat(segment->fd_, &status) != 0 ||
      static_cast<uint64_t>(status.st_size) != kWordsBytes + 2 * ring_bytes) {
    return CannotOpen(absl::StrCat(path, " is not what was offered"));
  }
  RUBATO_RETURN_IF_ERROR(segment->Map(ring_bytes));
  if (segment->words_->magic != kMagic || segment->words_->nonce != nonce) {
    return CannotOpen(absl::StrCat(path, " is of another process (another container?)"));
  }
  return segment;
}

bool SharedSegment::IsFromAnotherHost(const absl::Status& status) {
  return status.message() == kOtherHost;
}

absl::Status SharedSegment::Map(size_t ring_bytes) {
  constexpr int kAccess = PROT_READ | PROT_WRITE;
  const auto failed = [] {
    return absl::ResourceExhaustedError(
        absl::StrCat("shared memory cannot be mapped: ", std::strerror(errno)));
  };
  void* words = mmap(nullptr, kWordsBytes, kAccess, MAP_SHARED, fd_, 0);
  if (words == MAP_FAILED) return failed();
  words_ = static_cast<SharedWords*>(words);
  ring_bytes_ = ring_bytes;
  for (int end = 0; end < 2; ++end) {
    void* place = mmap(nullptr, 2 * ring_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (place == MAP_FAILED) return failed();
    rings_[end] = static_cast<char*>(place);
    const off_t offset = static_cast<off_t>(kWordsBytes + static_cast<size_t>(end) * ring_bytes);
    for (char* copy : {rings_[end], rings_[end] + ring_bytes}) {
      if (mmap(copy, ring_bytes, kAccess, MAP_SHARED | MAP_FIXED | MAP_POPULATE, fd_, offset) ==
          MAP_FAILED) {
        return failed();
      }
    }
  }
  return absl::OkStatus();
}

SharedSegment::~SharedSegment() {
  if (words_ != nullptr) munmap(words_, kWordsBytes);
  for (char* ring : rings_) {
    if (ring != nullptr) munmap(ring, 2 * ring_bytes_);
  }
  if (fd_ >= 0) close(fd_);
}

}  // namespace rubato
