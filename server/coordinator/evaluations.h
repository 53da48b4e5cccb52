// Part of the coordinator's core: the tests of parameters during the training. Which tests are
// requested, which worker runs which test, and the last result.
#ifndef RUBATO_SERVER_COORDINATOR_EVALUATIONS_H_
#define RUBATO_SERVER_COORDINATOR_EVALUATIONS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/space/modes.h"
#include "proto/cluster.pb.h"
#include "proto/job.pb.h"
#include "server/coordinator/assignments.h"
#include "server/coordinator/lineage.h"
#include "server/run/metrics.h"

namespace rubato {

class Evaluations {
 public:
  Evaluations(const proto::Job& job, int64_t samples_per_epoch)
      : job_(job), every_(job.evaluation().every(), job, samples_per_epoch) {}

  // Whether `worker`, which is given the unit, is to test the parameters that it pulls for the
  // unit. If a unit is given again (not `is_new`), the first worker may not have tested.
  bool Ask(const WorkerId& worker, int64_t unit, bool is_new, const Lineage& lineage);
  // A worker begins a test before it computes the unit at which the test is due: the worker that
  // has been given the unit, if it was asked to; for a step, the worker with the first micro-batch.
  void OnGivenComputed(const WorkerId& worker, int64_t unit);
  void OnComputed(const WorkerId& worker, const proto::Progress& progress, const Lineage& lineage);
  // Whether the worker may have a result of the test at `unit` that has not been told.
  bool Expects(const WorkerId& worker, int64_t unit, const Lineage& lineage) const;
  // Whether its result has been told in this lineage, or nobody will tell it any more.
  bool IsTold(int64_t unit) const { return unit < told_below_ || told_.count(unit) != 0; }
  // `line` is the result of the test at `unit`; nothing if nothing was tested. Why the job is to
  // stop, if train.stop_when says so.
  std::optional<std::string> OnResult(int64_t unit, const std::optional<MetricsLine>& line);
  // A script's worker has passed a test that was its own, and `is_told` what it found, or not. What
  // to warn of, once each: that nothing is told of what the job goes by, unless the training is
  // over; and that rank 0 alone tests.
  std::vector<std::string> OnPassed(const WorkerId& worker, int64_t step, bool is_told,
                                    bool is_final);
  // The worker is lost and will report no more tests.
  void OnLost(const WorkerId& worker);
  // `lineage` is over. Whether the next one tests the parameters that it begins with.
  bool EndLineage(const Lineage& lineage) {
    return tests_origin_ = IsDue(lineage, lineage.until());
  }
  // Units may be counted anew from here.
  void BeginLineage() {
    asked_.clear();
    told_.clear();
    told_below_ = 0;
  }

  // Tests that have certainly begun and whose results have not come, by unit, and who makes them.
  std::map<int64_t, WorkerId>& under_way() { return under_way_; }
  // The result of the latest parameters.
  const std::optional<MetricsLine>& last() const { return last_; }

 private:
  // Tests that are remembered as told: so many later ones may be told before one.
  static constexpr size_t kMostTold = 1024;

  bool IsDue(const Lineage& lineage, int64_t unit) const {
    return every_.IsDue(lineage.schedule(), lineage.mode(), unit, tests_origin_);
  }

  const proto::Job job_;
  const Recurrence every_;
  bool tests_origin_ = false;
  std::map<int64_t, WorkerId> asked_;  // and not begun yet
  std::map<int64_t, WorkerId> under_way_;
  // Of this lineage: those below `told_below_`, or nobody will tell of them any more, and others.
  int64_t told_below_ = 0;
  std::set<int64_t> told_;
  std::optional<MetricsLine> last_;
  // Of a script.
  bool has_warned_of_none_ = false;
  bool has_warned_of_first_ = false;
  bool first_tells_ = false;   // rank 0, of a test
  bool first_misses_ = false;  // one, of which it has told nothing
  bool others_tell_ = false;
  std::optional<int> misses_;  // the rank of another
};

}  // namespace rubato

#endif  // RUBATO_SERVER_COORDINATOR_EVALUATIONS_H_
