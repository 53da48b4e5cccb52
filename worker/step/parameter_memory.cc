#include "worker/step/parameter_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/base/last_words.h"
#include "common/wire/arena_space.h"
#include "common/wire/shared_arena.h"

namespace rubato {
namespace {

constexpr uint64_t kNowhere = ~uint64_t{0};

constexpr int kPrivate = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

size_t WholePages(size_t bytes) { return (bytes + kSharedPage - 1) / kSharedPage * kSharedPage; }

// Of the floats of `values`.
size_t PagesOf(int64_t values) {
  return WholePages(static_cast<size_t>(std::max<int64_t>(values, 1)) * sizeof(float));
}

}  // namespace

ParameterMemory::ParameterMemory(const FlatSpace& space, const PinMemory& pin, ReaderMemory reader)
    : space_(space), loans_(static_cast<size_t>(space.blocks())), reader_(std::move(reader)) {
  for (Vector& vector : vectors_) {
    void* begin = mmap(nullptr, PagesOf(space.values()), PROT_READ | PROT_WRITE, kPrivate, -1, 0);
    if (begin == MAP_FAILED) EndOutOfMemory();
    vector.begin = static_cast<float*>(begin);
    vector.places.resize(loans_.size());
  }
  RUBATO_CHECK(pin == nullptr || reader_ == nullptr);
  // What is mapped to a place later would not be what a device has pinned there.
  if (pin != nullptr) {
    pin_ = pin(vectors_[0].begin, static_cast<int64_t>(PagesOf(space.values())));
  }
}

ParameterMemory::~ParameterMemory() {
  pin_ = nullptr;
  for (const Vector& vector : vectors_) munmap(vector.begin, PagesOf(space_.values()));
}

void ParameterMemory::Begin(int64_t version) {
  for (std::shared_ptr<const void>& loan : loans_) loan = nullptr;
  // What is copied needs one vector only.
  current_ = maps_.exchange(false) ? static_cast<int>(version & 1) : 0;
  absl::MutexLock lock(&mutex_);
  readers_ = std::nullopt;
}

absl::Span<const float> ParameterMemory::values() const {
  absl::MutexLock lock(&mutex_);
  float* const readers = readers_.value_or(nullptr);
  return {readers != nullptr ? readers : vectors_[current_].begin,
          static_cast<size_t>(space_.values())};
}

// Within this lock the reader takes its own; within that others take PulledParameters', and within
// that Begin is called. No circle closes: Begin is not called while a block is being filled in.
float* ParameterMemory::AskReader() {
  absl::MutexLock lock(&mutex_);
  if (readers_.has_value()) return *readers_;
  readers_ = reader_().data();
  if (*readers_ != nullptr && copies_.exchange(false)) {  // into what is not needed any more
    for (const Vector& vector : vectors_) {
      madvise(vector.begin, PagesOf(space_.values()), MADV_DONTNEED);
    }
  }
  return *readers_;
}

void ParameterMemory::Fill(int64_t block, const ReceivedValues& values, bool may_borrow) {
  float* const readers = reader_ == nullptr ? nullptr : AskReader();
  const Range range = space_.BlockValues(block);
  if (may_borrow && pin_ == nullptr && values.lent() != nullptr && Map(block, *values.lent())) {
    maps_ = true;
    if (readers == nullptr) {
      loans_[block] = values.lent()->loan;
    } else {  // through the place, which stays mapped: pages of the arena's windows do not
      const float* const lent = vectors_[current_].begin + range.begin;
      std::copy_n(lent, values.size(), readers + range.begin);
    }
    return;
  }
  if (readers != nullptr) {
    values.CopyTo({readers + range.begin, values.size()});
    return;
  }
  Place& place = vectors_[current_].places[block];
  if (place.arena != nullptr) {
    void* own =
        mmap(At(block), PagesOf(range.size()), PROT_READ | PROT_WRITE, kPrivate | MAP_FIXED, -1, 0);
    if (own == MAP_FAILED) EndOutOfMemory();
    place = {};
    --borrowed_places_;
  }
  values.CopyTo({vectors_[current_].begin + range.begin, values.size()});
  copies_ = true;
}

char* ParameterMemory::At(int64_t block) const {
  return reinterpret_cast<char*>(vectors_[current_].begin + space_.BlockValues(block).begin);
}

bool ParameterMemory::Map(int64_t block, const LentValues& lent) {
  Place& place = vectors_[current_].places[block];
  if (place.arena == lent.arena && place.offset == lent.offset) return true;
  const Range range = space_.BlockValues(block);
  // Other blocks must not share its pages.
  if (static_cast<size_t>(space_.block_values()) * sizeof(float) % kSharedPage != 0 ||
      lent.offset % kSharedPage != 0) {
    return false;
  }
  if (place.arena == nullptr) {
    if (borrowed_places_ >= kMaxBorrowed) return false;
    ++borrowed_places_;
  }
  if (!lent.arena->MapTo(At(block), lent.offset, PagesOf(range.size()))) {
    place = {lent.arena, kNowhere};  // to be mapped anew, whatever is there
    return false;
  }
  place = {lent.arena, lent.offset};
  return true;
}

}  // namespace rubato
