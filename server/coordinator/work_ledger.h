// Work on arrival: numbered ranges of samples (units) are leased to workers. Each unit is finally
// applied on all shards or left out by its worker. If its worker is lost, it may be applied on some
// blocks (partial) or on none (lost): then it is leased again, and blocks that already contain it
// ignore it.
#ifndef RUBATO_SERVER_COORDINATOR_WORK_LEDGER_H_
#define RUBATO_SERVER_COORDINATOR_WORK_LEDGER_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "common/consistency/unit_set.h"
#include "server/coordinator/assignments.h"
#include "server/run/work_counts.h"

namespace rubato {

class WorkLedger {
 public:
  // Units from `first` on; `redo` of those before are not done.
  explicit WorkLedger(int64_t first = 0, const std::vector<int64_t>& redo = {}) : next_(first) {
    for (const int64_t unit : redo) redo_[unit] = false;
  }

  // No work is in progress: the next units are numbered from `first` on.
  void Restart(int64_t first) { next_ = first; }
  // A unit below `end` for `worker`, first of those to be done again; none if all are given out.
  std::optional<int64_t> Give(const WorkerId& worker, int64_t end);
  // `worker` has computed the unit as its clock number `clock`, or has left it out. Whether the
  // unit has not been computed before.
  bool OnComputed(const WorkerId& worker, int64_t unit, int64_t clock, bool left_out);
  // All shards hold `worker`'s contributions of clocks below `clock`.
  void OnApplied(const WorkerId& worker, int64_t clock);
  // `worker` is lost, and its contributions count no more. `whole`: for each shard that has blocks,
  // the units that all of them hold; `partial`: other units that some block holds.
  void OnLost(const WorkerId& worker, const std::vector<UnitSet>& whole,
              const std::set<int64_t>& partial);

  // `worker` leaves and drops the units that it has not computed; nothing of them was sent.
  void OnLeaving(const WorkerId& worker);

  int64_t next() const { return next_; }  // all below have been given out
  int64_t redo() const { return static_cast<int64_t>(redo_.size()); }
  std::vector<int64_t> redo_units() const;  // which they are
  int64_t under_way() const;
  int64_t first_open() const;  // all below are done
  // Units given to the worker that it has not computed yet.
  int64_t Waiting(const WorkerId& worker) const;
  // Whether the unit is given to the worker, and not known to be applied everywhere.
  bool Holds(const WorkerId& worker, int64_t unit) const;
  const WorkCounts& counts() const { return counts_; }

 private:
  struct Lease {
    int64_t unit;
    bool computed_before = false;  // by one who is lost
    int64_t clock = -1;            // below 0: not computed yet
  };

  int64_t next_;
  std::map<int64_t, bool> redo_;                   // and whether it has been computed before
  std::map<WorkerId, std::vector<Lease>> leases_;  // in the order in which they were given
  WorkCounts counts_;
};

}  // namespace rubato

#endif  // RUBATO_SERVER_COORDINATOR_WORK_LEDGER_H_
