// How long a drawn job may continue after the last fault. In this second phase of a scenario all
// servers are alive and reachable, at least cluster.workers.min workers are there, and no more
// faults occur. The job must then end in time.
#ifndef RUBATO_TOOLS_SIMULATOR_FINISH_BOUND_H_
#define RUBATO_TOOLS_SIMULATOR_FINISH_BOUND_H_

#include <cstdint>

#include "tools/simulator/scenario.h"

namespace rubato {

class FinishBound {
 public:
  // `scenario` must outlive it.
  explicit FinishBound(const Scenario& scenario);

  // The longest time that the job may take after the end of the last fault, if `samples_left`
  // samples are left: the time to notice and replace lost processes, to compute all the rest on the
  // slowest worker alone, and for the remaining tests and checkpoints.
  SimTime From(int64_t samples_left) const;

  // How long each process may go on after the job.
  SimTime EndsWithin() const;

  // The time of a few messages back and forth, including all messages of a view.
  SimTime view_time() const { return view_time_; }

 private:
  const Scenario& scenario_;
  SimTime view_time_ = 0;
};

}  // namespace rubato

#endif  // RUBATO_TOOLS_SIMULATOR_FINISH_BOUND_H_
