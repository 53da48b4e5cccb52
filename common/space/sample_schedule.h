// Which samples of which epoch belong to the u-th unit of work. A unit is a step (sync) or a
// contribution (on arrival): `unit_samples` samples divided over `leaves` micro-batches. Units do
// not cross the end of an epoch: an epoch's last unit may be short. Numbers of units begin at an
// origin anywhere in the data, so that a job that changes what a unit is in the middle of an epoch
// goes on with the next sample.
#ifndef RUBATO_COMMON_SPACE_SAMPLE_SCHEDULE_H_
#define RUBATO_COMMON_SPACE_SAMPLE_SCHEDULE_H_

#include <cstdint>

#include "common/space/flat_space.h"

namespace rubato {

// Positions in the order of an epoch; Permutation turns a position into the index of a sample.
struct SampleRange {
  int64_t epoch = 0;
  Range positions;
};

class SampleSchedule {
 public:
  // All > 0. Unit `origin_unit` begins with the sample after the first `origin_samples`.
  SampleSchedule(int64_t samples_per_epoch, int64_t unit_samples, int64_t leaves,
                 int64_t origin_unit = 0, int64_t origin_samples = 0);

  int64_t leaves() const { return leaves_; }
  int64_t origin_unit() const { return origin_unit_; }

  // `unit` is at or after the origin.
  SampleRange Unit(int64_t unit) const;
  // The leaf-th micro-batch of a unit: short units are divided evenly, so a micro-batch of a unit
  // with fewer samples than leaves may be empty.
  SampleRange MicroBatch(int64_t unit, int64_t leaf) const;
  // In the micro-batches `leaves`, of which there is one at least.
  int64_t Samples(int64_t unit, Range leaves) const;

  // Samples from the job's beginning to the beginning of `unit`, at or after the origin.
  int64_t SamplesBefore(int64_t unit) const;
  // The first unit before which at least `samples` samples lie.
  int64_t UnitsFor(int64_t samples) const;

 private:
  int64_t samples_per_epoch_;
  int64_t unit_samples_;
  int64_t leaves_;
  int64_t units_per_epoch_;
  int64_t origin_unit_;
  int64_t origin_epoch_;
  int64_t origin_position_;     // in that epoch
  int64_t first_epochs_units_;  // of the origin's epoch, from the origin on
};

}  // namespace rubato

#endif  // RUBATO_COMMON_SPACE_SAMPLE_SCHEDULE_H_
