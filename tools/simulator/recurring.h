// What recurs at regular points of the training: tests, and checkpoints. The reference says where
// they are due.
#ifndef RUBATO_TOOLS_SIMULATOR_RECURRING_H_
#define RUBATO_TOOLS_SIMULATOR_RECURRING_H_

#include <cstdint>
#include <set>

#include "absl/status/status.h"
#include "proto/checkpoint.pb.h"
#include "tools/simulator/invariants.h"
#include "tools/simulator/scenario.h"

namespace rubato {

class Recurring {
 public:
  // Both must outlive it.
  Recurring(const Scenario& scenario, const Invariants& invariants)
      : scenario_(scenario), invariants_(invariants) {}

  // A term begins.
  void OnTerm() {
    tested_.clear();
    written_.clear();
  }
  // A test that was due at that unit has been told of; `is_ending`: the training is over.
  absl::Status OnTest(int64_t unit, bool is_ending);
  // It is about to be written. One that is due on arrival may be taken later, in steps.
  absl::Status OnCheckpoint(const proto::Manifest& manifest, bool is_ending);
  // Of a job that has ended in its first term, in which nobody was lost: that nothing was left out.
  absl::Status CheckTests() const;
  // The same of the first checkpoint, where messages of those that are told of it came in time.
  absl::Status CheckFirstCheckpoint() const;

 private:
  // Whether checkpoints are taken where they are due, and nowhere else.
  bool has_checkpoints() const {
    return scenario_.job.checkpoint_every.steps > 0 && scenario_.checkpoints.empty();
  }

  const Scenario& scenario_;
  const Invariants& invariants_;
  std::set<int64_t> tested_;   // units
  std::set<int64_t> written_;  // of steps
};

}  // namespace rubato

#endif  // RUBATO_TOOLS_SIMULATOR_RECURRING_H_
