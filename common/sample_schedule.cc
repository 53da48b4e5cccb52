#include "common/sample_schedule.h"

#include <algorithm>

#include "common/check.h"

namespace rubato {

SampleSchedule::SampleSchedule(int64_t samples_per_epoch, int64_t unit_samples, int64_t leaves)
    : samples_per_epoch_(samples_per_epoch),
      unit_samples_(unit_samples),
      leaves_(leaves),
      units_per_epoch_((samples_per_epoch + unit_samples - 1) / unit_samples) {
  RUBATO_CHECK(samples_per_epoch > 0 && unit_samples > 0 && leaves > 0);
}

SampleRange SampleSchedule::Unit(int64_t unit) const {
  const int64_t begin = unit % units_per_epoch_ * unit_samples_;
  return {unit / units_per_epoch_, {begin, std::min(samples_per_epoch_, begin + unit_samples_)}};
}

SampleRange SampleSchedule::MicroBatch(int64_t unit, int64_t leaf) const {
  RUBATO_CHECK(0 <= leaf && leaf < leaves_);
  const SampleRange whole = Unit(unit);
  const int64_t n = whole.positions.size();
  return {whole.epoch,
          {whole.positions.begin + leaf * n / leaves_,
           whole.positions.begin + (leaf + 1) * n / leaves_}};
}

int64_t SampleSchedule::SamplesBefore(int64_t units) const {
  return units / units_per_epoch_ * samples_per_epoch_ +
         std::min(samples_per_epoch_, units % units_per_epoch_ * unit_samples_);
}

int64_t SampleSchedule::UnitsFor(int64_t samples) const {
  const int64_t rest = samples % samples_per_epoch_;
  return samples / samples_per_epoch_ * units_per_epoch_ +
         (rest + unit_samples_ - 1) / unit_samples_;
}

}  // namespace rubato
