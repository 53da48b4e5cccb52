// How long a drawn job may go on after the last fault: the second phase of a scenario, in which
// servers live and are reached, at least cluster.workers.min workers are there, and nothing more
// happens to them. The job must then end in time.
#ifndef RUBATO_TOOLS_SIMULATOR_FINISH_BOUND_H_
#define RUBATO_TOOLS_SIMULATOR_FINISH_BOUND_H_

#include <cstdint>

#include "tools/simulator/scenario.h"

namespace rubato {

class FinishBound {
 public:
  // `scenario` must outlive it.
  explicit FinishBound(const Scenario& scenario);

  // How long the job takes at most from the last fault's end on, if `samples_left` are still to be
  // trained on: what it takes to notice who is lost and to replace it, all that is left computed by
  // the slowest worker alone, and the tests and checkpoints that are still to come.
  SimTime From(int64_t samples_left) const;

  // How long each process may go on after the job.
  SimTime EndsWithin() const;

  // What a few messages to and fro take, with all of a view's among them.
  SimTime view_time() const { return view_time_; }

 private:
  const Scenario& scenario_;
  SimTime view_time_ = 0;
};

}  // namespace rubato

#endif  // RUBATO_TOOLS_SIMULATOR_FINISH_BOUND_H_
