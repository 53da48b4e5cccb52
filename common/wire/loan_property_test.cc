// The loans of one direction of a link in shared memory: an owner whose arena is cut into pieces by
// ArenaSpace, a RingWriter that lends them, and a reader that takes frames out of the ring, keeps
// what it has borrowed for a drawn time and gives it back in any order; the reader stalls, dies
// with loans outstanding, or the link ends in the midst. What SharedLink and SharedArena do with
// memory is done here with a vector. Judged by what the pieces hold: nothing that is lent is
// written over before it is given back, and each piece is free again exactly once.
#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/base/random.h"
#include "common/wire/outbox.h"
#include "common/wire/ring.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

constexpr uint64_t kRing = 4 << 10;

class Case {
 public:
  explicit Case(uint64_t seed)
      : random_(Key(seed, "loans")), writer_(std::make_unique<RingWriter>(kRing)), ring_(kRing) {
    given_back_.resize(kMaxLoans, 1);
  }

  // Empty if all rules were kept.
  std::string Run() {
    for (int i = 0; i < 600 && failure_.empty(); ++i) Happen();
    // The link ends: by a reader that has given all back, or by one that is dead or frozen.
    const bool reader_lives = random_.Below(2) == 0;
    if (reader_lives) {
      stalled_ = false;
      for (int i = 0; i < 3000 && failure_.empty(); ++i) {
        Write();
        ReadOne();
        GiveBackOne();
        TakeBack();
      }
      if (!outbox_.empty() || !borrowed_.empty()) Fail("order: a frame was not read");
      if (frames_read_ != frames_sent_) Fail("order: a frame was lost");
    }
    CheckBorrowed();
    outbox_.Clear();
    if (reader_lives && pieces_out_ != 0) Fail("loan: what is back is not free again");
    // Its end takes back what the reader keeps; that is what writes over it only now.
    writer_.reset();
    if (pieces_out_ != 0) Fail("loan: a piece is still out when the link is gone");
    return failure_;
  }

  int64_t lent() const { return lent_; }
  int64_t reused() const { return reused_; }

 private:
  struct Borrowed {
    uint32_t loan;
    uint64_t offset, bytes;
    char pattern;
  };

  void Fail(const std::string& what) {
    if (failure_.empty()) failure_ = what;
  }

  void Happen() {
    if (random_.Below(30) == 0) stalled_ = !stalled_;
    switch (random_.Below(6)) {
      case 0:
      case 1:
        Send();
        break;
      case 2:
        Write();
        break;
      case 3:
        if (!stalled_) ReadOne();
        break;
      case 4:
        if (!stalled_) GiveBackOne();
        break;
      case 5:
        TakeBack();
    }
  }

  // A frame whose payload lies in a piece of the arena, or a small one that does not.
  void Send() {
    if (outbox_.size() > 50) return;
    Frame frame;
    frame.block = random_.Below(8);
    frame.unit = ++frames_sent_;
    if (random_.Below(3) == 0) {
      const auto small = std::make_shared<std::vector<float>>(random_.Below(100));
      outbox_.Push(frame, small->empty() ? Payload() : Payload(small, *small));
      return;
    }
    const uint64_t bytes = kMinLent + kSharedPage * random_.Below(3);
    ArenaSpace::Piece piece = space_.Find(bytes);
    if (piece.slab_bytes > 0) {
      space_.Grow(piece.slab_bytes);
      piece = space_.Find(bytes);
    }
    space_.Take(piece);
    if (piece.is_reserved) ++reused_;
    for (const auto& [offset, other] : in_use_) {
      if (offset < piece.offset + piece.bytes && piece.offset < offset + other) {
        Fail("arena: a piece is given out that somebody has");
      }
    }
    in_use_[piece.offset] = piece.bytes;
    ++pieces_out_;
    if (arena_.size() < piece.offset + piece.bytes) arena_.resize(piece.offset + piece.bytes);
    const char pattern = static_cast<char>(1 + frames_sent_ % 100);
    std::fill_n(arena_.begin() + static_cast<int64_t>(piece.offset), piece.bytes, pattern);
    const std::shared_ptr<const void> owner(&ring_, [this, piece](const void*) {
      --pieces_out_;
      if (in_use_.erase(piece.offset) == 0) Fail("loan: a piece is free twice");
      space_.GiveBack(piece);
    });
    // What the payload points to is not read: where it lies in the arena is kept beside it.
    const absl::Span<const char> at(reinterpret_cast<const char*>(piece.offset), bytes);
    outbox_.Push(frame, Payload(owner, Codec::kFloat32, at, bytes / sizeof(float)));
  }

  // As SharedLink::WriteWaiting.
  void Write() {
    while (!outbox_.empty()) {
      const OutgoingFrame& next = outbox_.front();
      TakeBack();
      const bool lends = RingWriter::MayLend(next.payload) && writer_->HasLoan();
      const uint64_t bytes = next.payload_bytes();
      if (!lends && bytes >= kMinLent) return;  // it would not fit this ring
      if (!writer_->HasRoom(bytes, lends, read_)) return;
      char header[kRingHeader] = {};
      EncodeFrame(HeaderOf(next.frame, next.payload), reinterpret_cast<uint8_t*>(header));
      LoanWords loan = {};
      if (lends) {
        loan = {reinterpret_cast<uint64_t>(next.payload.bytes.data()), writer_->next_loan(), 1};
        if (!given_back_[loan.number]) Fail("loan: a number is out twice");
        given_back_[loan.number] = 0;
        ++lent_;
      }
      std::memcpy(header + kFrameHeaderBytes, &loan, sizeof(loan));
      const uint64_t at = writer_->written();
      for (uint64_t i = 0; i < kRingHeader; ++i) ring_[(at + i) % kRing] = header[i];
      lends ? writer_->WriteLent(next.payload) : writer_->Write(bytes);
      if (writer_->written() - read_ > kRing) Fail("ring: what is not read is written over");
      order_.push_back(next.frame.unit);
      outbox_.PopFront();
    }
  }

  void ReadOne() {
    if (read_ == writer_->written()) return;
    char header[kRingHeader];
    for (uint64_t i = 0; i < kRingHeader; ++i) header[i] = ring_[(read_ + i) % kRing];
    std::vector<char> at(header, header + kRingHeader);
    const absl::StatusOr<RingFrame> found =
        ReadRingFrame(at.data(), writer_->written() - read_, kRing);
    if (!found.ok()) {
      Fail(std::string(found.status().message()));
      return;
    }
    read_ += found->bytes;
    ++frames_read_;
    if (found->frame.unit != order_.front()) Fail("order: frames come in another order");
    order_.pop_front();
    if (!found->is_lent()) return;
    const uint64_t bytes = found->frame.payload_bytes;
    borrowed_.push_back({found->loan.number, found->loan.offset, bytes,
                         static_cast<char>(1 + found->frame.unit % 100)});
    Check(borrowed_.back());
  }

  void GiveBackOne() {
    if (borrowed_.empty()) return;
    std::swap(borrowed_[random_.Below(static_cast<uint32_t>(borrowed_.size()))], borrowed_.back());
    Check(borrowed_.back());
    given_back_[borrowed_.back().loan] = 1;
    borrowed_.pop_back();
  }

  void TakeBack() {
    writer_->TakeBack([this](uint32_t loan) { return given_back_[loan] != 0; });
  }

  // It holds what its sender has written, from the first byte to the last.
  void Check(const Borrowed& borrowed) {
    if (arena_[borrowed.offset] != borrowed.pattern ||
        arena_[borrowed.offset + borrowed.bytes - 1] != borrowed.pattern) {
      Fail("loan: what is lent was written over before it was given back");
    }
  }
  void CheckBorrowed() {
    for (const Borrowed& borrowed : borrowed_) Check(borrowed);
  }

  RandomStream random_;
  std::string failure_;
  ArenaSpace space_;
  std::vector<char> arena_;
  std::map<uint64_t, uint64_t> in_use_;  // pieces: bytes, by offset
  int64_t pieces_out_ = 0;
  Outbox outbox_;
  std::unique_ptr<RingWriter> writer_;
  std::vector<char> ring_;
  std::vector<char> given_back_;  // by number of the loan; also before the first use
  uint64_t read_ = 0;
  std::deque<uint64_t> order_;  // in which frames were written
  uint64_t frames_sent_ = 0, frames_read_ = 0;
  std::vector<Borrowed> borrowed_;
  bool stalled_ = false;
  int64_t lent_ = 0, reused_ = 0;
};

TEST(LoanPropertyTest, WhatIsLentStaysUntilItIsGivenBackAndIsFreeOnce) {
  int64_t lent = 0, reused = 0;
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    Case one(seed);
    ASSERT_EQ(one.Run(), "") << "seed " << seed;
    lent += one.lent();
    reused += one.reused();
  }
  EXPECT_GT(lent, 50000);
  EXPECT_GT(reused, 10000);
}

}  // namespace
}  // namespace rubato
