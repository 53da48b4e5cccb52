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

// "step 20"; on arrival "contribution 20".
std::string UnitText(const proto::Mode& mode, int64_t unit);

// As a checkpoint's manifest says it, which knows no staleness: that of bounded is 0 and not told.
proto::Manifest::Mode ToManifest(const proto::Mode& mode);
proto::Mode FromManifest(proto::Manifest::Mode mode);

// The position in the job's order of samples from which a checkpoint of steps is resumed. Steps
// that were left out count, although no block contains them; so the position may be beyond
// `samples`, which is counted by blocks.
int64_t PositionOf(const proto::Manifest& checkpoint);

// The state of a block that was kept in view `kept`, for the first view `view` of a term that
// continues from there or from a later lineage. A later lineage begins only when all shards are
// done with the earlier one. So a block that has not heard of it is at its beginning, and has left
// out what it lacks (Shard::BeginLineage). If both lineages are of steps, blocks keep their state:
// some may have applied a step that others have not.
proto::BlockState AsGoesOn(const proto::View& view, const proto::View& kept,
                           proto::BlockState block);

// One mode up to a point of the training.
struct ModeSpan {
  proto::Mode mode;
  int64_t until_samples = 0;
};

// Samples in the whole training; for a training that ends by time alone, more than it can ever
// reach.
int64_t TotalSamples(const proto::Job& job, int64_t samples_per_epoch);

// In order; the last one ends with the training.
std::vector<ModeSpan> ModesOf(const proto::Job& job, int64_t samples_per_epoch);

// In which the training begins.
proto::Mode FirstMode(const proto::Job& job);

// Micro-batches of a unit of work: of a step, or of a contribution on arrival, which is a worker's
// share of a step, fixed for the job.
int64_t LeavesOf(const proto::Job& job, const proto::Mode& mode);

// What to warn of where some of `workers` workers have nothing to compute, as in steps with fewer
// micro-batches; empty elsewhere.
std::string IdleWorkers(const proto::Job& job, const proto::Mode& mode, int64_t workers);
// What to warn of where no step, or no contribution on arrival, is as large as the job says; empty
// elsewhere.
std::string ShortUnits(const proto::Job& job, const proto::Mode& mode, int64_t samples_per_epoch);

// Steps or contributions from where an earlier mode has ended.
SampleSchedule ScheduleOf(const proto::Job& job, const proto::Mode& mode, int64_t samples_per_epoch,
                          int64_t origin_unit, int64_t origin_samples);

// An event that recurs at regular points of the training.
class Recurrence {
 public:
  // `every` counts no time.
  Recurrence(const proto::Point& every, const proto::Job& job, int64_t samples_per_epoch);

  // The first number of units above `units` after which it happens.
  int64_t Next(const SampleSchedule& schedule, const proto::Mode& mode, int64_t units) const;
  // The last number of units up to `units` after which it happens; the origin's, or 0, if none is.
  int64_t Last(const SampleSchedule& schedule, const proto::Mode& mode, int64_t units) const;
  // Whether it happens after `units` units. Of what lies before its origin the schedule knows
  // nothing: `at_origin` says whether it happens there.
  bool IsDue(const SampleSchedule& schedule, const proto::Mode& mode, int64_t units,
             bool at_origin = false) const;

 private:
  int64_t steps_;  // in sync, where it counts them; else 0
  int64_t samples_;
};

}  // namespace rubato

#endif  // RUBATO_COMMON_SPACE_MODES_H_
