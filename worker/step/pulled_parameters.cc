#include "worker/step/pulled_parameters.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "common/base/check.h"

namespace rubato {

void PulledParameters::Open(const Placement& placement, Range first, Callbacks callbacks) {
  const FlatSpace& space = placement.space();
  absl::MutexLock lock(&mutex_);
  placement_ = placement;
  first_ = first;
  callbacks_ = std::move(callbacks);
  memory_.emplace(space);
  versions_.assign(space.blocks(), 0);
  here_.assign(space.blocks(), false);
}

void PulledParameters::Begin(const Pull& pull) {
  const auto at_rest = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return filling_ == 0; };
  absl::MutexLock lock(&mutex_, absl::Condition(&at_rest));
  pull_ = pull;
  memory_->Begin(pull.clock);
  here_.assign(here_.size(), false);
  missing_ = placement_->space().blocks();
  passed_ = in_use_ = false;
  staleness_sum_ = 0;
  times_ = {};
  times_.begun = idle_since_ = absl::GetCurrentTimeNanos();
}

absl::Status PulledParameters::OnFrame(int shard, const Frame& frame,
                                       const ReceivedValues& values) {
  const int64_t block = static_cast<int64_t>(frame.block);
  const int64_t version = static_cast<int64_t>(frame.version);
  bool may_borrow;
  {
    absl::MutexLock lock(&mutex_);
    if (frame.kind == FrameKind::kParameters && frame.unit != pull_.number) {
      return absl::OkStatus();  // to an older pull
    }
    if (frame.kind != FrameKind::kParameters || !placement_->Blocks(shard).Contains(block) ||
        static_cast<int64_t>(values.size()) != placement_->space().BlockValues(block).size() ||
        here_[block]) {
      return absl::InternalError(
          absl::StrFormat("shard %d sent %d values as block %d", shard, values.size(), block));
    }
    if (pull_.exact && version < pull_.clock) {
      return absl::InternalError(
          absl::StrFormat("shard %d sent version %d of block %d; expected at least %d", shard,
                          version, block, pull_.clock));
    }
    // On arrival versions are not kept.
    may_borrow = pull_.exact && !pull_.observer;
    ++filling_;
    pulled_bytes_ += frame.payload_bytes;
  }
  memory_->Fill(block, values, may_borrow);
  bool first = false, all = false;
  Arrived arrived;
  {
    absl::MutexLock lock(&mutex_);
    const bool had_first = IsHere(first_);
    --filling_;
    versions_[block] = version;
    here_[block] = true;
    --missing_;
    staleness_sum_ += frame.staleness;
    if (pull_.exact && version > pull_.clock) passed_ = true;
    if (!pull_.observer && callbacks_.on_block) callbacks_.on_block(frame);
    if (missing_ == 0) {
      times_.arrived = absl::GetCurrentTimeNanos();
      if (!in_use_) times_.waited += times_.arrived - idle_since_;
    }
    all = missing_ == 0 && !in_use_;
    first = missing_ > 0 && !had_first && IsHere(first_) && !in_use_ && !pull_.observer;
    arrived = Result();
  }
  if (first) callbacks_.on_first();
  if (all) callbacks_.on_all(arrived);
  return absl::OkStatus();
}

bool PulledParameters::IsHere(Range values) const {
  if (missing_ == 0 || values.empty()) return true;
  const int64_t size = placement_->space().block_values();
  for (int64_t block = values.begin / size; block * size < values.end; ++block) {
    if (!here_[block]) return false;
  }
  return true;
}

PulledParameters::Arrived PulledParameters::Result() const {
  return {pull_.number, passed_,
          static_cast<double>(staleness_sum_) / static_cast<double>(placement_->space().blocks())};
}

std::optional<uint64_t> PulledParameters::MayBegin() const {
  absl::MutexLock lock(&mutex_);
  if (missing_ == 0 || pull_.observer || passed_ || in_use_ || interrupted() || !IsHere(first_)) {
    return std::nullopt;
  }
  return pull_.number;
}

bool PulledParameters::Use(absl::Time deadline) {
  absl::MutexLock lock(&mutex_);
  if (missing_ == 0 || passed_) return false;
  in_use_ = true;
  deadline_ = deadline;
  owner_ = std::this_thread::get_id();
  times_.waited += absl::GetCurrentTimeNanos() - idle_since_;
  return true;
}

bool PulledParameters::Await(Range values) {
  const auto may_go_on = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return passed_ || IsHere(values) || interrupted();
  };
  absl::MutexLock lock(&mutex_);
  if (!may_go_on()) {
    const int64_t begin = absl::GetCurrentTimeNanos();
    mutex_.AwaitWithDeadline(absl::Condition(&may_go_on), deadline_);
    if (std::this_thread::get_id() == owner_) {
      times_.waited += absl::GetCurrentTimeNanos() - begin;
    }
  }
  return !passed_ && IsHere(values);
}

PulledParameters::Arrived PulledParameters::FinishUse() {
  absl::MutexLock lock(&mutex_);
  RUBATO_CHECK(in_use_ && missing_ == 0 && !passed_);
  in_use_ = false;
  return Result();
}

void PulledParameters::Abandon() {
  Arrived arrived;
  {
    absl::MutexLock lock(&mutex_);
    in_use_ = false;
    idle_since_ = absl::GetCurrentTimeNanos();
    if (missing_ > 0) return;
    arrived = Result();
  }
  callbacks_.on_all(arrived);
}

int64_t PulledParameters::TakePulledBytes() {
  absl::MutexLock lock(&mutex_);
  return std::exchange(pulled_bytes_, 0);
}

PulledParameters::Times PulledParameters::times() const {
  absl::MutexLock lock(&mutex_);
  return times_;
}

}  // namespace rubato
