#include "worker/session/pulled_blocks.h"

#include <utility>

#include "absl/strings/str_format.h"

namespace rubato {

PulledBlocks::PulledBlocks(const Placement& placement, Range first)
    : placement_(placement),
      first_(first),
      versions_(placement.space().blocks()),
      here_(placement.space().blocks()) {}

void PulledBlocks::Begin(const Pull& pull) {
  pull_ = pull;
  here_.assign(here_.size(), false);
  missing_ = static_cast<int64_t>(here_.size());
  passed_ = false;
  version_sum_ = staleness_sum_ = 0;
}

absl::StatusOr<bool> PulledBlocks::Wants(int shard, const Frame& frame) const {
  const int64_t block = static_cast<int64_t>(frame.block);
  const int64_t version = static_cast<int64_t>(frame.version);
  if (frame.kind == FrameKind::kParameters && frame.unit != pull_.number) return false;
  if (frame.kind != FrameKind::kParameters || !placement_.Blocks(shard).Contains(block)) {
    return absl::InternalError(absl::StrFormat("shard %d sent block %d", shard, block));
  }
  if (here_[block]) return false;
  if (pull_.exact && version < pull_.clock) {
    return absl::InternalError(
        absl::StrFormat("shard %d sent version %d of block %d; expected at least %d", shard,
                        version, block, pull_.clock));
  }
  return true;
}

void PulledBlocks::Add(const Frame& frame, int64_t payload_bytes) {
  versions_[frame.block] = static_cast<int64_t>(frame.version);
  here_[frame.block] = true;
  --missing_;
  version_sum_ += versions_[frame.block];
  staleness_sum_ += frame.staleness;
  bytes_ += payload_bytes;
  if (pull_.exact && static_cast<int64_t>(frame.version) > pull_.clock) passed_ = true;
}

bool PulledBlocks::IsHere(Range values) const {
  if (missing_ == 0 || values.empty()) return true;
  const int64_t size = placement_.space().block_values();
  for (int64_t block = values.begin / size; block * size < values.end; ++block) {
    if (!here_[block]) return false;
  }
  return true;
}

PulledBlocks::Readable PulledBlocks::ReadableNow(Range values) const {
  if (passed_) return Readable::kNever;
  return IsHere(values) ? Readable::kYes : Readable::kNotYet;
}

bool PulledBlocks::MayBegin() const {
  return missing_ > 0 && !pull_.observer && ReadableNow(first_) == Readable::kYes;
}

PulledBlocks::Arrived PulledBlocks::arrived() const {
  const int64_t blocks = static_cast<int64_t>(here_.size());
  return {pull_.number, passed_, static_cast<double>(staleness_sum_) / static_cast<double>(blocks),
          version_sum_ / blocks};
}

int64_t PulledBlocks::TakeBytes() { return std::exchange(bytes_, 0); }

}  // namespace rubato
