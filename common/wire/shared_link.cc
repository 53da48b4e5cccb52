#include "common/wire/shared_link.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/monotonic.h"
#include "common/wire/spin_rule.h"

namespace rubato {
namespace {

// Lines that the other processor has in its cache are asked for so far ahead: without, copying
// is several times slower.
constexpr size_t kAhead = 2048;

void CopyToRing(char* out, const char* from, size_t bytes) {
  for (size_t at = 0; at < bytes; at += kAhead) {
    const size_t size = std::min(kAhead, bytes - at);
    for (size_t line = at + size; line < std::min(bytes, at + size + kAhead); line += kRingLine) {
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

void WakeIfAsleep(SharedWords::End* end) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (end->sleeping.load(std::memory_order_relaxed) == 1 && end->sleeping.exchange(0) == 1) {
    FutexWake(&end->sleeping);
  }
}

// This thread, from now on, on those of its processors that the process may use. What that writes
// lies in the caches there, and neither waits for the other to be noticed by another processor.
void RunWhereRuns(int process) {
  cpu_set_t theirs, own;
  if (sched_getaffinity(process, sizeof theirs, &theirs) != 0) return;
  if (sched_getaffinity(0, sizeof own, &own) != 0) return;
  CPU_AND(&theirs, &theirs, &own);
  // Where the process is not bound, the kernel is to go on changing what both may use.
  if (CPU_COUNT(&theirs) == 0 || CPU_EQUAL(&theirs, &own)) return;
  (void)sched_setaffinity(0, sizeof theirs, &theirs);
}

void Relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

SharedLink::SharedLink(std::unique_ptr<SharedSegment> segment,
                       std::shared_ptr<const SharedArena> arena, size_t max_waiting,
                       Callbacks callbacks, bool hands_over)
    : segment_(std::move(segment)),
      arena_(std::move(arena)),
      max_waiting_(max_waiting),
      callbacks_(std::move(callbacks)),
      hands_over_(hands_over),
      writer_(segment_->ring_bytes()) {
  // Where it does not work one way, as between some containers, payloads go through the ring.
  if (const std::string offer = segment_->LentByPeer(); !offer.empty()) {
    auto view = SharedArenaView::Open(offer);
    borrowing_ = view.status();
    if (view.ok()) {
      peers_arena_ = *std::move(view);
      own().borrows = 1;
    }
  }
  thread_ = std::thread([this] {
    pthread_setname_np(pthread_self(), "link");
    if (segment_->end() == 1) RunWhereRuns(segment_->creator());
    Run();
  });
}

SharedLink::~SharedLink() {
  Stop();
  thread_.join();
}

void SharedLink::Send(const Frame& frame, const Payload& payload) {
  if (hands_over_) {
    {
      absl::MutexLock lock(&mutex_);
      Enqueue(frame, payload);
    }
    WakeIfAsleep(&own());
    return;
  }
  {
    absl::MutexLock writer_lock(&writer_mutex_);
    std::optional<Room> room;
    {
      absl::MutexLock lock(&mutex_);
      if (outbox_.empty()) room = FindRoom(payload);
      if (!room.has_value()) return Enqueue(frame, payload);
    }
    Write(frame, payload, *room);
  }
  WakeIfAsleep(&peer());
}

void SharedLink::Enqueue(const Frame& frame, const Payload& payload) {
  outbox_.Push(frame, payload);
  waiting_bytes_ += RingBytes(payload.bytes.size());
}

void SharedLink::Stop() {
  stopping_ = true;
  Wake();
}

void SharedLink::Ask(std::shared_ptr<void> asked) {
  {
    absl::MutexLock lock(&mutex_);
    asked_.swap(asked);
  }
  is_asked_ = true;
  Wake();
}

void SharedLink::LetAskedGo() {
  std::shared_ptr<void> asked;  // goes when the mutex is free
  absl::MutexLock lock(&mutex_);
  asked_.swap(asked);
}

void SharedLink::Wake() {
  own().sleeping = 0;
  FutexWake(&own().sleeping);
}

void SharedLink::Run() {
  absl::Status status;
  LinkSpinRule rule;
  while (!stopping_ && status.ok()) {
    if (is_asked_.exchange(false)) LetAskedGo();
    // Whoever waits for an answer first.
    const bool wrote = waiting_bytes_ > 0 && WriteWaiting();
    if ((waiting_bytes_ <= max_waiting_ && ReadFrame(&status)) || wrote) {
      if (rule.waits()) rule.OnWork(MonotonicNanos());
      continue;
    }
    const int64_t now = MonotonicNanos();
    if (!rule.waits()) {
      own().processor = 1 + sched_getcpu();
      rule.OnWait(now, peer().processor == own().processor);
    }
    if (rule.MaySpin(now)) {
      Relax();
    } else {
      Sleep();
    }
  }
  {
    absl::MutexLock lock(&mutex_);
    outbox_.Clear();
  }
  LetAskedGo();
  callbacks_.on_end(status);
}

bool SharedLink::ReadFrame(absl::Status* status) {
  const uint64_t written = peer().written.load(std::memory_order_acquire);
  if (written == read_) return false;
  if (arena_ != nullptr) {  // before what is lent is needed for what the frame asks for
    absl::MutexLock lock(&writer_mutex_);
    TakeBack();
  }
  const char* const at =
      segment_->ring(1 - segment_->end()) + (read_ & (segment_->ring_bytes() - 1));
  const absl::StatusOr<RingFrame> frame =
      ReadRingFrame(at, written - read_, segment_->ring_bytes());
  *status = frame.ok() ? HandleFrame(*frame, at + kRingHeader) : frame.status();
  if (!frame.ok()) return false;
  read_ += frame->bytes;
  own().read.store(read_, std::memory_order_release);
  WakeIfAsleep(&peer());  // it may wait for room
  return true;
}

absl::Status SharedLink::HandleFrame(const RingFrame& found, const char* payload) {
  const size_t bytes = found.frame.payload_bytes;
  if (found.is_lent()) {
    payload = peers_arena_ == nullptr ? nullptr : peers_arena_->At(found.loan.offset, bytes);
    if (payload == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("in shared memory a frame has a payload at ",
                                                     found.loan.offset, ", which is not lent"));
    }
  }
  absl::StatusOr<ReceivedValues> values =
      ReceivedValues::FromOtherProcessor(found.frame, Piece(payload, bytes), &scratch_);
  if (!values.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("in shared memory ", values.status().message()));
  }
  if (found.is_lent()) {
    std::atomic<uint8_t>* const given_back = &own().given_back[found.loan.number];
    values->SetLent(
        {peers_arena_, found.loan.offset,
         std::shared_ptr<const void>(given_back, [segment = segment_](const void* flag) {
           auto* word = static_cast<std::atomic<uint8_t>*>(const_cast<void*>(flag));
           word->store(1, std::memory_order_release);
         })});
  }
  const absl::Status status = callbacks_.on_frame(found.frame, *values);
  values->GiveBack();
  return status;
}

bool SharedLink::WriteWaiting() {
  absl::MutexLock writer_lock(&writer_mutex_);
  bool wrote = false;
  while (true) {
    std::optional<Room> room;
    std::optional<OutgoingFrame> next;
    {
      absl::MutexLock lock(&mutex_);
      if (!outbox_.empty()) room = FindRoom(outbox_.front().payload);
      if (!room.has_value()) return wrote;
      next = outbox_.PopFront();
    }
    Write(next->frame, next->payload, *room);
    waiting_bytes_ -= RingBytes(next->payload_bytes());
    WakeIfAsleep(&peer());
    wrote = true;
  }
}

std::optional<SharedLink::Room> SharedLink::FindRoom(const Payload& payload) {
  const uint64_t bytes = payload.bytes.size();
  const Room room = {FindToLend(payload)};
  const bool is_lent = room.lent_at.has_value();
  RUBATO_CHECK(is_lent || RingBytes(bytes) <= segment_->ring_bytes());
  if (!writer_.HasRoom(bytes, is_lent, peer().read.load())) return std::nullopt;
  return room;
}

void SharedLink::Write(const Frame& frame, const Payload& payload, const Room& room) {
  const uint64_t bytes = payload.bytes.size();
  char* const at =
      segment_->ring(segment_->end()) + (writer_.written() & (segment_->ring_bytes() - 1));
  EncodeFrame(HeaderOf(frame, payload), reinterpret_cast<uint8_t*>(at));
  LoanWords loan = {};
  if (room.lent_at.has_value()) {
    loan = {*room.lent_at, writer_.next_loan(), 1};
    peer().given_back[loan.number] = 0;
    writer_.WriteLent(payload);
  } else {
    CopyToRing(at + kRingHeader, payload.bytes.data(), bytes);
    writer_.Write(bytes);
  }
  std::memcpy(at + kFrameHeaderBytes, &loan, sizeof(loan));
  own().written.store(writer_.written(), std::memory_order_release);
}

std::optional<uint64_t> SharedLink::FindToLend(const Payload& payload) {
  if (arena_ == nullptr || !RingWriter::MayLend(payload) || peer().borrows != 1) {
    return std::nullopt;
  }
  TakeBack();
  if (!writer_.HasLoan()) return std::nullopt;
  return arena_->Find(payload.bytes);
}

void SharedLink::TakeBack() {
  writer_.TakeBack([this](uint32_t loan) {
    return peer().given_back[loan].load(std::memory_order_acquire) != 0;
  });
}

bool SharedLink::MayGoOn() {
  if (stopping_ || is_asked_) return true;
  if (waiting_bytes_ <= max_waiting_ && peer().written.load() != read_) return true;
  absl::MutexLock writer_lock(&writer_mutex_);
  absl::MutexLock lock(&mutex_);
  return !outbox_.empty() && FindRoom(outbox_.front().payload).has_value();
}

// What the peer does after this has checked is seen here, or the peer sees that this sleeps: each
// writes its own word first, then reads the other's, both in one order for all (seq_cst).
void SharedLink::Sleep() {
  own().sleeping.store(1);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (!MayGoOn()) FutexWait(&own().sleeping, 1);
  own().sleeping.store(0);
}

}  // namespace rubato
