#include "worker/step/pulled_parameters.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "common/base/status.h"

namespace rubato {

void PulledParameters::Open(const Placement& placement, Range first, Callbacks callbacks,
                            const PinMemory& pin, ReaderMemory reader) {
  MonotonicLock lock(&mutex_);
  space_ = placement.space();
  callbacks_ = std::move(callbacks);
  memory_.reset();  // what it has pinned first
  memory_.emplace(*space_, pin, std::move(reader));
  blocks_ = PulledBlocks(placement, first);
}

void PulledParameters::Close() {
  MonotonicLock lock(&mutex_);
  memory_.reset();
}

void PulledParameters::Begin(const Pull& pull, bool is_busy) {
  const auto at_rest = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return filling_ == 0; };
  MonotonicLock lock(&mutex_, absl::Condition(&at_rest));
  memory_->Begin(pull.clock);
  blocks_.Begin(pull);
  in_use_ = false;
  times_ = {};
  times_.begun = MonotonicNanos();
  idle_since_ = is_busy ? 0 : times_.begun;
}

void PulledParameters::BecomeIdle() {
  MonotonicLock lock(&mutex_);
  if (idle_since_ == 0) idle_since_ = MonotonicNanos();
}

absl::Status PulledParameters::OnFrame(int shard, const Frame& frame,
                                       const ReceivedValues& values) {
  const int64_t block = static_cast<int64_t>(frame.block);
  bool may_borrow;
  {
    MonotonicLock lock(&mutex_);
    RUBATO_ASSIGN_OR_RETURN(const bool wanted, blocks_.Wants(shard, frame));
    if (!wanted) return absl::OkStatus();
    if (static_cast<int64_t>(values.size()) != space_->BlockValues(block).size()) {
      return absl::InternalError(
          absl::StrFormat("shard %d sent %d values as block %d", shard, values.size(), block));
    }
    // On arrival versions are not kept.
    may_borrow = blocks_.pull().exact && !blocks_.pull().observer;
    ++filling_;
  }
  memory_->Fill(block, values, may_borrow);
  bool first = false, all = false;
  Arrived arrived;
  {
    MonotonicLock lock(&mutex_);
    const bool could_begin = blocks_.MayBegin();
    --filling_;
    blocks_.Add(frame, frame.payload_bytes);
    if (!blocks_.pull().observer && callbacks_.on_block) callbacks_.on_block(frame);
    all = blocks_.missing() == 0;
    if (all) {
      times_.arrived = MonotonicNanos();
      if (!in_use_) times_.waited += IdleUntil(times_.arrived);
    }
    arrived = blocks_.arrived();
    first = !could_begin && blocks_.MayBegin() && !in_use_;
    all = all && !in_use_;
  }
  if (first) callbacks_.on_first(arrived.number);
  if (all) callbacks_.on_all(arrived);
  return absl::OkStatus();
}

std::optional<uint64_t> PulledParameters::MayBegin() const {
  MonotonicLock lock(&mutex_);
  if (in_use_ || interrupted() || !blocks_.MayBegin()) return std::nullopt;
  return blocks_.pull().number;
}

bool PulledParameters::Use(absl::Time deadline) {
  MonotonicLock lock(&mutex_);
  if (!blocks_.MayBegin()) return false;
  in_use_ = true;
  deadline_ = deadline;
  owner_ = std::this_thread::get_id();
  times_.waited += IdleUntil(MonotonicNanos());
  return true;
}

bool PulledParameters::Await(Range values) {
  const auto may_go_on = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return blocks_.ReadableNow(values) != PulledBlocks::Readable::kNotYet || interrupted();
  };
  MonotonicLock lock(&mutex_);
  if (!may_go_on()) {
    const int64_t begin = MonotonicNanos();
    mutex_.AwaitUntil(absl::Condition(&may_go_on), deadline_);
    if (std::this_thread::get_id() == owner_) {
      times_.waited += MonotonicNanos() - begin;
    }
  }
  return blocks_.ReadableNow(values) == PulledBlocks::Readable::kYes;
}

PulledParameters::Arrived PulledParameters::FinishUse() {
  MonotonicLock lock(&mutex_);
  RUBATO_CHECK(in_use_ && blocks_.missing() == 0 && !blocks_.passed());
  in_use_ = false;
  return blocks_.arrived();
}

void PulledParameters::Abandon() {
  Arrived arrived;
  {
    MonotonicLock lock(&mutex_);
    in_use_ = false;
    idle_since_ = MonotonicNanos();
    if (blocks_.missing() > 0) return;
    arrived = blocks_.arrived();
  }
  callbacks_.on_all(arrived);
}

int64_t PulledParameters::TakePulledBytes() {
  MonotonicLock lock(&mutex_);
  return blocks_.TakeBytes();
}

PulledParameters::Times PulledParameters::times() const {
  MonotonicLock lock(&mutex_);
  return times_;
}

}  // namespace rubato
