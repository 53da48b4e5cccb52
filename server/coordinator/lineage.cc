#include "server/coordinator/lineage.h"

namespace rubato {

Lineage::Lineage(const proto::Job& job, int64_t samples_per_epoch)
    : job_(job), samples_per_epoch_(samples_per_epoch), stages_(ModesOf(job, samples_per_epoch)) {}

const ModeSpan& Lineage::StageAt(int64_t samples) const {
  for (const ModeSpan& stage : stages_) {
    if (samples < stage.until_samples) return stage;
  }
  return stages_.back();
}

void Lineage::Begin(const proto::Mode& mode, int64_t unit, int64_t samples) {
  ++number_;
  mode_ = mode;
  schedule_.emplace(ScheduleOf(job_, mode, samples_per_epoch_, unit, samples));
  until_ = schedule_->UnitsFor(StageAt(samples).until_samples);
  is_over_ = false;
  asked_holds_ = asked_.has_value() && IsSame(mode, *asked_);
}

bool Lineage::has_expired() const {
  return asked_holds_ && samples() >= asked_until_;
}

proto::Mode Lineage::next_mode() const {
  return asked_.has_value() && !has_expired() ? *asked_ : ScheduledAt(samples());
}

void Lineage::BeginNext(int64_t unit) {
  const proto::Mode mode = next_mode();
  if (has_expired()) asked_.reset();
  Begin(mode, unit, samples());
}

}  // namespace rubato
