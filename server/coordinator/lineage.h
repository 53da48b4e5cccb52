// Part of the coordinator's core: which mode is in force, and for which units of work. A lineage is
// the training between two changes of mode; the schedule or a person requests the next one.
#ifndef RUBATO_SERVER_COORDINATOR_LINEAGE_H_
#define RUBATO_SERVER_COORDINATOR_LINEAGE_H_

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "common/space/modes.h"
#include "common/space/sample_schedule.h"
#include "proto/job.pb.h"

namespace rubato {

class Lineage {
 public:
  // None has begun: Begin is next.
  Lineage(const proto::Job& job, int64_t samples_per_epoch);

  // Begins in `mode` with unit `unit`, before which lie `samples` samples; ends where the schedule
  // has another mode.
  void Begin(const proto::Mode& mode, int64_t unit, int64_t samples);
  // Begins the one after this, which ended, with unit `unit`.
  void BeginNext(int64_t unit);
  // Ends before `unit`, if not earlier.
  void Cut(int64_t unit) { until_ = std::min(until_, unit); }
  // All its units are done, and the next view begins another.
  void Finish() { is_over_ = true; }

  // The schedule's next point, in samples of the job.
  int64_t stage_until_samples() const {
    return StageAt(schedule_->SamplesBefore(origin())).until_samples;
  }

  // A person asks for `mode`, up to so many samples: the next point of the schedule.
  void Ask(const proto::Mode& mode, int64_t until_samples) {
    asked_ = mode;
    asked_until_ = until_samples;
    asked_holds_ = false;
  }
  // The mode that a person has requested and that is not in force yet.
  std::optional<proto::Mode> asked() const { return asked_holds_ ? std::nullopt : asked_; }

  uint32_t number() const { return number_; }  // from 1
  const proto::Mode& mode() const { return mode_; }
  const SampleSchedule& schedule() const { return *schedule_; }
  int64_t origin() const { return schedule_->origin_unit(); }
  // The first unit that is not its.
  int64_t until() const { return until_; }
  // Samples of the job up to its end.
  int64_t samples() const { return schedule_->SamplesBefore(until_); }
  bool is_over() const { return is_over_; }
  // Whether the training ends with it.
  bool is_last() const { return samples() >= stages_.back().until_samples; }
  // The mode after its end.
  proto::Mode next_mode() const;
  // The mode that the job has after so many samples: what was asked for, or the schedule's.
  proto::Mode WantedAt(int64_t samples) const {
    return asked_.has_value() ? *asked_ : ScheduledAt(samples);
  }
  // The mode that the schedule has after so many samples.
  const proto::Mode& ScheduledAt(int64_t samples) const { return StageAt(samples).mode; }

 private:
  const ModeSpan& StageAt(int64_t samples) const;
  // Whether the mode that a person has requested was in force up to its end.
  bool has_expired() const;

  const proto::Job job_;
  const int64_t samples_per_epoch_;
  const std::vector<ModeSpan> stages_;
  uint32_t number_ = 0;
  proto::Mode mode_;
  std::optional<SampleSchedule> schedule_;
  int64_t until_ = 0;
  bool is_over_ = false;
  std::optional<proto::Mode> asked_;
  int64_t asked_until_ = 0;   // samples
  bool asked_holds_ = false;  // this lineage is what was asked for
};

}  // namespace rubato

#endif  // RUBATO_SERVER_COORDINATOR_LINEAGE_H_
