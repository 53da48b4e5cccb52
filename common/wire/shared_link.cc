#include "common/wire/shared_link.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "common/base/check.h"
#include "common/base/status.h"

namespace rubato {
namespace {

// A frame's header and payload each begin on a cache line.
constexpr uint64_t kLine = 64;
constexpr uint64_t kHeaderRoom = 128;
static_assert(kFrameHeaderBytes <= kHeaderRoom);

// Behind a frame's header: of a payload that is lent, and then does not follow.
struct LoanWords {
  uint64_t offset;  // in the sender's arena
  uint32_t number;  // of the loan
  uint32_t is_lent;
};
static_assert(kFrameHeaderBytes + sizeof(LoanWords) <= kHeaderRoom);

uint64_t Room(uint64_t payload_bytes) {
  return kHeaderRoom + (payload_bytes + kLine - 1) / kLine * kLine;
}

// Lent bytes that the peer may have before it: what is in the ring cannot be overtaken by what is
// more urgent. As much as a stream's window by TCP.
constexpr uint64_t kMostUnread = 4 << 20;

// How long to look before sleeping: a few times what a system call and waking up cost.
constexpr int64_t kLookNanos = 50000;

// Lines that the other processor has in its cache are asked for so far ahead: without, copying
// is several times slower.
constexpr size_t kAhead = 2048;

void CopyToRing(char* out, const char* from, size_t bytes) {
  for (size_t at = 0; at < bytes; at += kAhead) {
    const size_t size = std::min(kAhead, bytes - at);
    for (size_t line = at + size; line < std::min(bytes, at + size + kAhead); line += kLine) {
      __builtin_prefetch(out + line, 1);
      __builtin_prefetch(from + line, 0);
    }
    std::memcpy(out + at, from + at, size);
  }
}

void FutexWait(std::atomic<uint32_t>* word, uint32_t value) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), FUTEX_WAIT, value, nullptr, nullptr, 0);
}

void FutexWake(std::atomic<uint32_t>* word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

void Relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

SharedLink::SharedLink(std::unique_ptr<SharedSegment> segment,
                       std::shared_ptr<const SharedArena> arena, size_t most_waiting,
                       Callbacks callbacks)
    : segment_(std::move(segment)),
      arena_(std::move(arena)),
      most_waiting_(most_waiting),
      callbacks_(std::move(callbacks)) {
  // Where it does not work one way, as between some containers, payloads go through the ring.
  if (const std::string offer = segment_->LentByPeer(); !offer.empty()) {
    auto view = SharedArenaView::Open(offer);
    borrowing_ = view.status();
    if (view.ok()) {
      peers_arena_ = *std::move(view);
      own().borrows = 1;
    }
  }
  thread_ = std::thread([this] { Run(); });
}

SharedLink::~SharedLink() {
  Stop();
  thread_.join();
}

void SharedLink::Send(const Frame& frame, const Payload& payload) {
  {
    absl::MutexLock lock(&mutex_);
    if (!outbox_.empty() || !TryWrite(frame, payload)) {
      outbox_.Push(frame, payload);
      waiting_bytes_ += Room(payload.bytes.size());
      return;
    }
  }
  WakePeer();
}

void SharedLink::Stop() {
  stopping_ = true;
  own().sleeping = 0;
  FutexWake(&own().sleeping);
}

void SharedLink::Run() {
  absl::Status status;
  int64_t waits_since = 0, looks_until = 0;
  bool last_was_short = true;
  while (!stopping_ && status.ok()) {
    // Whoever waits for an answer first.
    const bool wrote = waiting_bytes_ > 0 && WriteWaiting();
    if ((waiting_bytes_ <= most_waiting_ && ReadFrame(&status)) || wrote) {
      if (waits_since != 0) {
        last_was_short = absl::GetCurrentTimeNanos() - waits_since < kLookNanos;
        waits_since = 0;
      }
      continue;
    }
    const int64_t now = absl::GetCurrentTimeNanos();
    if (waits_since == 0) {
      waits_since = looks_until = now;
      own().processor = 1 + sched_getcpu();
      // Looking at a peer on the same processor would only keep it from running, and where the
      // last wait was longer than a look, this one mostly is.
      if (last_was_short && peer().processor != own().processor) looks_until += kLookNanos;
    }
    if (now < looks_until) {
      Relax();
    } else {
      Sleep();
    }
  }
  {
    absl::MutexLock lock(&mutex_);
    outbox_.Clear();
  }
  callbacks_.on_end(status);
}

bool SharedLink::ReadFrame(absl::Status* status) {
  const uint64_t written = peer().written.load(std::memory_order_acquire);
  if (written == read_) return false;
  if (arena_ != nullptr) {  // before what is lent is needed for what the frame asks for
    absl::MutexLock lock(&mutex_);
    TakeBack();
  }
  const uint64_t available = written - read_;
  const auto nonsense = [&](const std::string& what) {
    *status = absl::InvalidArgumentError(absl::StrCat("in shared memory ", what));
    return false;
  };
  if (available < kHeaderRoom || available > segment_->ring_bytes()) {
    return nonsense(absl::StrFormat("the peer claims to have written %d bytes", available));
  }
  const char* const at =
      segment_->ring(1 - segment_->end()) + (read_ & (segment_->ring_bytes() - 1));
  uint8_t header[kFrameHeaderBytes];
  LoanWords loan;
  std::memcpy(header, at, sizeof(header));  // once: the peer could change it
  std::memcpy(&loan, at + sizeof(header), sizeof(loan));
  const absl::StatusOr<Frame> frame = DecodeFrame(header);
  if (!frame.ok()) {
    *status = frame.status();
    return false;
  }
  const bool is_lent = loan.is_lent != 0;
  const uint64_t room = is_lent ? kHeaderRoom : Room(frame->payload_bytes);
  const char* payload = at + kHeaderRoom;
  if (is_lent) {
    const bool may_be = peers_arena_ != nullptr && loan.offset % kLine == 0 &&
                        loan.number < SharedWords::kLoans && frame->payload_bytes >= kLeastLent;
    payload = may_be ? peers_arena_->At(loan.offset, frame->payload_bytes) : nullptr;
    if (payload == nullptr) {
      return nonsense(absl::StrFormat("a frame has a payload of %d bytes at %d, which is not lent",
                                      frame->payload_bytes, loan.offset));
    }
  } else if (room > available) {
    return nonsense(absl::StrFormat("a frame has a payload of %d bytes; %d bytes are there",
                                    frame->payload_bytes, available));
  }
  absl::StatusOr<ReceivedValues> values =
      ReceivedValues::FromOtherProcessor(*frame, Piece(payload, frame->payload_bytes), &scratch_);
  if (!values.ok()) return nonsense(std::string(values.status().message()));
  if (is_lent) {
    std::atomic<uint8_t>* const given_back = &own().given_back[loan.number];
    values->SetLent(
        {peers_arena_, loan.offset,
         std::shared_ptr<const void>(given_back, [segment = segment_](const void* flag) {
           auto* word = static_cast<std::atomic<uint8_t>*>(const_cast<void*>(flag));
           word->store(1, std::memory_order_release);
         })});
  }
  *status = callbacks_.on_frame(*frame, *values);
  values->GiveBack();
  read_ += room;
  own().read.store(read_, std::memory_order_release);
  WakePeer();  // it may wait for room
  return true;
}

bool SharedLink::WriteWaiting() {
  bool wrote = false;
  {
    absl::MutexLock lock(&mutex_);
    while (!outbox_.empty() && TryWrite(outbox_.front().frame, outbox_.front().payload)) {
      waiting_bytes_ -= Room(outbox_.PopFront().payload_bytes());
      wrote = true;
    }
  }
  if (wrote) WakePeer();
  return wrote;
}

bool SharedLink::TryWrite(const Frame& frame, const Payload& payload) {
  const uint64_t bytes = payload.bytes.size();
  const std::optional<uint64_t> lent_at = FindToLend(payload);
  const uint64_t room = lent_at.has_value() ? kHeaderRoom : Room(bytes);
  RUBATO_CHECK(room <= segment_->ring_bytes());
  if (!HasRoom(payload, lent_at.has_value())) return false;
  char* const at = segment_->ring(segment_->end()) + (written_ & (segment_->ring_bytes() - 1));
  EncodeFrame(HeaderOf(frame, payload), reinterpret_cast<uint8_t*>(at));
  LoanWords loan = {};
  if (lent_at.has_value()) {
    loan = {*lent_at, static_cast<uint32_t>((first_loan_ + lent_.size()) % SharedWords::kLoans), 1};
    peer().given_back[loan.number] = 0;
    lent_.push_back(payload.owner);
  } else {
    CopyToRing(at + kHeaderRoom, payload.bytes.data(), bytes);
  }
  std::memcpy(at + kFrameHeaderBytes, &loan, sizeof(loan));
  written_ += room;
  if (lent_at.has_value()) {
    unread_.push_back({written_, bytes});
    unread_bytes_ += bytes;
  }
  own().written.store(written_, std::memory_order_release);
  return true;
}

std::optional<uint64_t> SharedLink::FindToLend(const Payload& payload) {
  if (arena_ == nullptr || !payload.may_lend || payload.bytes.size() < kLeastLent ||
      payload.bytes.size() > SharedArenaView::kMostBytes || peer().borrows != 1) {
    return std::nullopt;
  }
  TakeBack();
  if (lent_.size() == SharedWords::kLoans) return std::nullopt;
  return arena_->Find(payload.bytes);
}

void SharedLink::TakeBack() {
  while (!lent_.empty() && peer().given_back[first_loan_ % SharedWords::kLoans].load(
                               std::memory_order_acquire) != 0) {
    lent_.pop_front();
    ++first_loan_;
  }
}

bool SharedLink::MayGoOn() {
  if (stopping_) return true;
  if (waiting_bytes_ <= most_waiting_ && peer().written.load() != read_) return true;
  absl::MutexLock lock(&mutex_);
  if (outbox_.empty()) return false;
  const Payload& next = outbox_.front().payload;
  return HasRoom(next, FindToLend(next).has_value());
}

bool SharedLink::HasRoom(const Payload& payload, bool lends) {
  const uint64_t read = peer().read.load();
  const uint64_t taken = written_ - read;
  const uint64_t room = lends ? kHeaderRoom : Room(payload.bytes.size());
  if (taken > segment_->ring_bytes() || segment_->ring_bytes() - taken < room) return false;
  while (!unread_.empty() && unread_.front().end <= read) {
    unread_bytes_ -= unread_.front().bytes;
    unread_.pop_front();
  }
  return !lends || unread_bytes_ < kMostUnread;
}

// What the peer does after this looked is seen here, or the peer sees that this sleeps: each writes
// its own word first, then reads the other's, both in one order for all (seq_cst).
void SharedLink::Sleep() {
  own().sleeping.store(1);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (!MayGoOn()) FutexWait(&own().sleeping, 1);
  own().sleeping.store(0);
}

void SharedLink::WakePeer() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (peer().sleeping.load(std::memory_order_relaxed) == 1 && peer().sleeping.exchange(0) == 1) {
    FutexWake(&peer().sleeping);
  }
}

}  // namespace rubato
