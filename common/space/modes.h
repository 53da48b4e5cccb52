// The modes of a job, as its YAML file says them: which holds when, and what a unit of work is.
#ifndef RUBATO_COMMON_SPACE_MODES_H_
#define RUBATO_COMMON_SPACE_MODES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/space/sample_schedule.h"
#include "proto/checkpoint.pb.h"
#include "proto/job.pb.h"
#include "proto/mode.pb.h"
#include "proto/view.pb.h"

namespace rubato {

proto::Mode SyncMode();
proto::Mode AsyncMode();
proto::Mode BoundedMode(int64_t staleness);

// Whether each contribution is an update of its own, when it arrives.
inline bool OnArrival(const proto::Mode& mode) { return mode.mode() != proto::Mode::NAME_SYNC; }
bool IsSame(const proto::Mode& a, const proto::Mode& b);
// "sync", "bounded, staleness 3".
std::string ModeName(const proto::Mode& mode);

// As a checkpoint's manifest says it, which knows no staleness.
proto::Manifest::Mode ToManifest(const proto::Mode& mode);
proto::Mode FromManifest(proto::Manifest::Mode mode);

// The place in the job's order of samples that a checkpoint of steps goes on from. What was left
// out counts, though no block holds it; so it may lie behind `samples`, which is told by blocks.
int64_t PositionOf(const proto::Manifest& checkpoint);

// A block that was kept in view `kept`, as the first view `view` of a term finds it, which goes on
// from there or from a lineage behind it. That one was begun when all shards were done with what
// came before, so a block that has not heard of it is where it begins, and has left out what it
// lacks of others (Shard::BeginLineage). Between steps, blocks stay where they are: some may have
// taken one that others have not.
proto::BlockState AsGoesOn(const proto::View& view, const proto::View& kept,
                           proto::BlockState block);

// One mode up to a point of the training.
struct ModeSpan {
  proto::Mode mode;
  int64_t until_samples = 0;
};

// Samples in the whole training; for one that ends by time alone, more than will come.
int64_t TotalSamples(const proto::Job& job, int64_t samples_per_epoch);

// In order; the last one ends with the training.
std::vector<ModeSpan> ModesOf(const proto::Job& job, int64_t samples_per_epoch);

// Micro-batches of a unit of work: of a step, or of a contribution on arrival, which is a worker's
// share of a step, fixed for the job.
int64_t LeavesOf(const proto::Job& job, const proto::Mode& mode);

// Steps or contributions from where an earlier mode has ended.
SampleSchedule ScheduleOf(const proto::Job& job, const proto::Mode& mode, int64_t samples_per_epoch,
                          int64_t origin_unit, int64_t origin_samples);

// What happens again and again, at points of the training.
class Recurrence {
 public:
  // `every` counts no time.
  Recurrence(const proto::Point& every, const proto::Job& job, int64_t samples_per_epoch);

  // The first number of units above `units` after which it happens.
  int64_t Next(const SampleSchedule& schedule, const proto::Mode& mode, int64_t units) const;
  // The last number of units up to `units` after which it happens; the origin's, or 0, if none is.
  int64_t Last(const SampleSchedule& schedule, const proto::Mode& mode, int64_t units) const;
  // Whether it happens after `units` units.
  bool IsDue(const SampleSchedule& schedule, const proto::Mode& mode, int64_t units) const;

 private:
  int64_t steps_;  // in sync, where it counts them; else 0
  int64_t samples_;
};

}  // namespace rubato

#endif  // RUBATO_COMMON_SPACE_MODES_H_
