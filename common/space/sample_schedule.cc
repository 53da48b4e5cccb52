#include "common/space/sample_schedule.h"

#include <algorithm>

#include "common/base/check.h"

namespace rubato {
namespace {

int64_t CeilOfRatio(int64_t numerator, int64_t denominator) {
  return (numerator + denominator - 1) / denominator;
}

}  // namespace

SampleSchedule::SampleSchedule(int64_t samples_per_epoch, int64_t unit_samples, int64_t leaves,
                               int64_t origin_unit, int64_t origin_samples)
    : samples_per_epoch_(samples_per_epoch),
      unit_samples_(unit_samples),
      leaves_(leaves),
      units_per_epoch_(CeilOfRatio(samples_per_epoch, unit_samples)),
      origin_unit_(origin_unit),
      origin_epoch_(origin_samples / samples_per_epoch),
      origin_position_(origin_samples % samples_per_epoch),
      first_epochs_units_(CeilOfRatio(samples_per_epoch - origin_position_, unit_samples)) {
  RUBATO_CHECK(samples_per_epoch > 0 && unit_samples > 0 && leaves > 0);
}

SampleRange SampleSchedule::Unit(int64_t unit) const {
  int64_t index = unit - origin_unit_;
  RUBATO_CHECK(index >= 0);
  int64_t epoch = origin_epoch_, begin = origin_position_;
  if (index >= first_epochs_units_) {
    index -= first_epochs_units_;
    epoch += 1 + index / units_per_epoch_;
    index %= units_per_epoch_;
    begin = 0;
  }
  begin += index * unit_samples_;
  return {epoch, {begin, std::min(samples_per_epoch_, begin + unit_samples_)}};
}

SampleRange SampleSchedule::MicroBatch(int64_t unit, int64_t leaf) const {
  RUBATO_CHECK(0 <= leaf && leaf < leaves_);
  const SampleRange whole = Unit(unit);
  const int64_t n = whole.positions.size();
  return {whole.epoch,
          {whole.positions.begin + leaf * n / leaves_,
           whole.positions.begin + (leaf + 1) * n / leaves_}};
}

int64_t SampleSchedule::Samples(int64_t unit, Range leaves) const {
  return MicroBatch(unit, leaves.end - 1).positions.end -
         MicroBatch(unit, leaves.begin).positions.begin;
}

int64_t SampleSchedule::SamplesBefore(int64_t unit) const {
  const SampleRange range = Unit(unit);
  return range.epoch * samples_per_epoch_ + range.positions.begin;
}

int64_t SampleSchedule::UnitsFor(int64_t samples) const {
  const int64_t epoch = samples / samples_per_epoch_;
  const int64_t position = samples % samples_per_epoch_;
  if (epoch < origin_epoch_ || (epoch == origin_epoch_ && position <= origin_position_)) {
    return origin_unit_;
  }
  if (epoch == origin_epoch_) {
    return origin_unit_ + CeilOfRatio(position - origin_position_, unit_samples_);
  }
  return origin_unit_ + first_epochs_units_ + (epoch - origin_epoch_ - 1) * units_per_epoch_ +
         CeilOfRatio(position, unit_samples_);
}

}  // namespace rubato
