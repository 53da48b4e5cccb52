#include "common/wire/received_values.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "common/check.h"
#include "common/kernels.h"

namespace rubato {
namespace {

// Values that are copied together: 16 KiB stay in the first-level cache until they are used.
constexpr size_t kRun = 4096;

bool IsAligned(const char* data) { return reinterpret_cast<uintptr_t>(data) % alignof(float) == 0; }

// What is used at a time of values that are fetched ahead: the next lines come meanwhile. With 2
// KiB sums reach three times the speed that they have without.
constexpr size_t kAheadRun = 512;

void FetchAhead(const float* values, size_t count) {
  constexpr size_t kLine = 64 / sizeof(float);
  for (size_t i = 0; i < count; i += kLine) __builtin_prefetch(values + i);
}

// Reads pieces front to back.
class Cursor {
 public:
  Cursor(absl::Span<const Piece> pieces, size_t offset) : pieces_(pieces), offset_(offset) {}

  // What is left of the piece at hand; not empty while there are bytes.
  Piece rest() {
    while (offset_ == pieces_.front().size()) {
      pieces_.remove_prefix(1);
      offset_ = 0;
    }
    return pieces_.front().subspan(offset_);
  }
  void Skip(size_t bytes) { offset_ += bytes; }

  void Read(char* out, size_t bytes) {
    while (bytes > 0) {
      const Piece from = rest();
      const size_t count = std::min(bytes, from.size());
      std::memcpy(out, from.data(), count);
      out += count;
      bytes -= count;
      Skip(count);
    }
  }

 private:
  absl::Span<const Piece> pieces_;
  size_t offset_;
};

}  // namespace

void ReceivedValues::ForEachRun(
    absl::FunctionRef<void(size_t begin, absl::Span<const float> run)> visit) const {
  if (is_fetched_ahead_) {
    VisitAhead(kRun, visit);
    return;
  }
  alignas(64) float copy[kRun];
  Cursor cursor(pieces(), offset_);
  for (size_t begin = 0; begin < size_;) {
    const Piece rest = cursor.rest();
    size_t count = std::min(rest.size() / sizeof(float), size_ - begin);
    if (count > 0 && IsAligned(rest.data())) {
      cursor.Skip(count * sizeof(float));
      visit(begin, {reinterpret_cast<const float*>(rest.data()), count});
    } else {
      count = std::min(kRun, size_ - begin);
      cursor.Read(reinterpret_cast<char*>(copy), count * sizeof(float));
      visit(begin, {copy, count});
    }
    begin += count;
  }
}

void ReceivedValues::VisitAhead(
    size_t run, absl::FunctionRef<void(size_t begin, absl::Span<const float> run)> visit) const {
  const auto* values = reinterpret_cast<const float*>(whole_.data());
  for (size_t begin = 0; begin < size_; begin += run) {
    const size_t count = std::min(run, size_ - begin), next = begin + count;
    FetchAhead(values + next, std::min(run, size_ - next));
    visit(begin, {values + begin, count});
  }
}

void ReceivedValues::CopyTo(absl::Span<float> out) const {
  RUBATO_CHECK(out.size() == size_);
  if (is_fetched_ahead_) {
    VisitAhead(kAheadRun, [&](size_t begin, absl::Span<const float> run) {
      std::memcpy(out.data() + begin, run.data(), run.size() * sizeof(float));
    });
    return;
  }
  Cursor(pieces(), offset_).Read(reinterpret_cast<char*>(out.data()), size_ * sizeof(float));
}

void ReceivedValues::AddTo(absl::Span<float> sum) const {
  RUBATO_CHECK(sum.size() == size_);
  if (is_fetched_ahead_) {
    VisitAhead(kAheadRun, [&](size_t begin, absl::Span<const float> run) {
      Add(sum.data() + begin, run.data(), sum.data() + begin, run.size());
    });
    return;
  }
  Cursor cursor(pieces(), offset_);
  for (float* at = sum.data(); at != sum.data() + size_;) {
    const Piece rest = cursor.rest();
    const size_t left = static_cast<size_t>(sum.data() + size_ - at);
    const size_t count = std::min(rest.size() / sizeof(float), left);
    if (count > 0) {
      Add(at, rest.data(), at, count);
      cursor.Skip(count * sizeof(float));
      at += count;
    } else {  // a float in two pieces
      char split[sizeof(float)];
      cursor.Read(split, sizeof(split));
      Add(at, split, at, 1);
      ++at;
    }
  }
}

absl::Span<const float> ReceivedValues::Whole(std::vector<float>* scratch) const {
  if (size_ == 0) return {};
  const Piece first = Cursor(pieces(), offset_).rest();
  if (first.size() >= size_ * sizeof(float) && IsAligned(first.data())) {
    return {reinterpret_cast<const float*>(first.data()), size_};
  }
  scratch->resize(size_);
  CopyTo(absl::MakeSpan(*scratch));
  return *scratch;
}

}  // namespace rubato
