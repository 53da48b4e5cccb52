// Checks liveness: that the job does not wait for a lost process, that the others continue without
// it in time, and that no process is blamed without a reason.
#ifndef RUBATO_TOOLS_SIMULATOR_LIVENESS_H_
#define RUBATO_TOOLS_SIMULATOR_LIVENESS_H_

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/coordinator/assignments.h"
#include "tools/simulator/fault.h"
#include "tools/simulator/simulation.h"

namespace rubato {

class Liveness {
 public:
  // `slack` is what messages to and fro may take on the network. All are times.
  Liveness(SimTime lease, SimTime stall_timeout, SimTime slack)
      : lease_(lease), stall_timeout_(stall_timeout), slack_(slack) {}

  // A fault has struck; `worker` is who runs there, if it is a worker that takes part.
  void OnFault(const Fault& fault, std::optional<WorkerId> worker, const Simulation& simulation);
  // A fault has struck worker `index`, or the machine of a server: its silence is explained.
  void OnStruck(int index) { struck_.insert(index); }
  void OnStruckServer() { servers_struck_ = true; }
  // The job has gone back.
  void OnTerm() { lost_.clear(); }
  // What the coordinator says.
  void OnText(const std::string& text);
  // After each event.
  void OnEvent(const Simulation& simulation);

  // What has been violated so far.
  const absl::Status& violated() const { return violated_; }

 private:
  // A member that cannot act for longer than a lease: the next view must exclude it.
  struct Lost {
    WorkerId worker;
    SimTime since = 0;
    SimTime until = 0;     // then it goes on, if it was only frozen or cut off
    SimTime deadline = 0;  // of that view
  };

  void CheckLost(const Simulation& simulation);
  void CheckWaits(const Simulation& simulation);
  // Workers join anew, and give up, when they are to.
  void CheckWorkers(const Simulation& simulation);
  SimTime DeadlineFrom(SimTime from) const { return from + lease_ + slack_; }
  void Violated(const std::string& text) {
    if (violated_.ok()) violated_ = absl::InternalError(text);
  }

  const SimTime lease_;
  const SimTime stall_timeout_;
  const SimTime slack_;
  std::vector<Lost> lost_;
  std::set<int> struck_;  // workers, by index
  bool servers_struck_ = false;
  SimTime disturbed_until_ = 0;  // by faults so far: a frozen shard closes no view
  absl::Status violated_;
};

}  // namespace rubato

#endif  // RUBATO_TOOLS_SIMULATOR_LIVENESS_H_
