// The payload of a received frame, not copied: the pieces in which the transport received it, which
// may split even a float. Encoded values are decoded when they are used, a few thousand at a time.
// Borrowed for a call.
#ifndef RUBATO_COMMON_FRAMES_RECEIVED_VALUES_H_
#define RUBATO_COMMON_FRAMES_RECEIVED_VALUES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/frames/codec.h"
#include "common/frames/frame.h"
#include "common/frames/payload.h"

namespace rubato {

class SharedArenaView;  // common/wire/shared_arena.h

using Piece = absl::Span<const char>;

// Values in another process's arena. That process does not change them while somebody shares
// `loan`.
struct LentValues {
  std::shared_ptr<const SharedArenaView> arena;
  uint64_t offset = 0;
  std::shared_ptr<const void> loan;
};

class ReceivedValues {
 public:
  ReceivedValues() = default;
  // Values that lie in one place.
  ReceivedValues(absl::Span<const float> values)  // NOLINT: what is whole is the simplest case
      : whole_(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)),
        size_(values.size()) {}
  ReceivedValues(const Payload& payload);  // NOLINT

  // The payload of `frame`, which begins `offset` bytes into the first of `pieces`; they hold it.
  // InvalidArgument if its bytes cannot be that. Top-k that lies in several pieces is put together
  // in `*scratch`, which is borrowed too.
  static absl::StatusOr<ReceivedValues> Create(const Frame& frame, absl::Span<const Piece> pieces,
                                               size_t offset, std::vector<char>* scratch);

  // The same for a payload in one aligned piece of memory that another processor has just written,
  // and may still write: values are prefetched, and the indices of top-k are copied before they are
  // checked, so they cannot change afterwards.
  static absl::StatusOr<ReceivedValues> FromOtherProcessor(const Frame& frame, Piece piece,
                                                           std::vector<char>* scratch);

  // Marks the values as lent: a holder of a share of the loan may read them after the call too.
  void SetLent(LentValues lent) { lent_ = std::move(lent); }
  // Null if they are not lent, or were given back.
  const LentValues* lent() const { return lent_.loan == nullptr ? nullptr : &lent_; }
  // Says that the values will not be read any more: the sender may reuse their memory now, not only
  // at the end of the call.
  void GiveBack() const { lent_.loan = nullptr; }

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }

  // Calls `visit` with runs of values, front to back: in the message itself where they are aligned
  // floats, else copied or decoded a few thousand at a time. `begin` is the index of a run's first
  // value.
  void ForEachRun(absl::FunctionRef<void(size_t begin, absl::Span<const float> run)> visit) const;

  // `out` has room for exactly all values.
  void CopyTo(absl::Span<float> out) const;
  // sum[i] += value i
  void AddTo(absl::Span<float> sum) const;

  // All values in one place: in the message if they are contiguous there, else in `scratch`.
  absl::Span<const float> Whole(std::vector<float>* scratch) const;

 private:
  explicit ReceivedValues(const Encoded& top_k)
      : size_(top_k.size()), codec_(Codec::kTopK), top_k_(top_k) {}
  ReceivedValues(Codec codec, absl::Span<const Piece> pieces, size_t offset, size_t size);

  absl::Span<const Piece> pieces() const {
    return pieces_.empty() ? absl::MakeConstSpan(&whole_, 1) : pieces_;
  }

  // Of what is fetched ahead, `run` values at a time.
  void VisitAhead(size_t run,
                  absl::FunctionRef<void(size_t begin, absl::Span<const float> run)> visit) const;
  // Of what is not float32, likewise; `out` has room for `run` values, or for all.
  void VisitDecoded(size_t run, absl::Span<float> out,
                    absl::FunctionRef<void(size_t begin, absl::Span<const float> run)> visit) const;

  Piece whole_;
  absl::Span<const Piece> pieces_;  // none: `whole_`
  size_t offset_ = 0;
  size_t size_ = 0;
  Codec codec_ = Codec::kFloat32;
  char scale_[sizeof(float)] = {};  // of codecs that have one; the values lie behind it
  std::optional<Encoded> top_k_;    // of that codec: the others' bytes lie as floats do
  bool is_fetched_ahead_ = false;
  mutable LentValues lent_;
};

}  // namespace rubato

#endif  // RUBATO_COMMON_FRAMES_RECEIVED_VALUES_H_
