// Hooks for tests of the whole system, set by environment variables of a worker's process. They are
// documented only here:
//
//   RUBATO_TEST_HANG_AT_UNIT=N    it computes nothing of unit N or a later one, for ever, while its
//                                 heartbeat goes on
//   RUBATO_TEST_COMPUTE_MS=20     its computations take so many milliseconds each; or by rank, as
//                                 "0:80,1:20,2:20+5", where rank 2's first one takes 5 more; with
//                                 "exp20" exponential times of that mean, the same in each run
//   RUBATO_TEST_TRACE=FOLDER      it writes to FOLDER/worker-RANK what it pulls, for each block a
//                                 line `pull CLOCK BLOCK VERSION STALENESS` (of its contribution
//                                 before that pull), and `compute LINEAGE CLOCK UNIT`
#ifndef RUBATO_WORKER_PROCESS_TEST_HOOKS_H_
#define RUBATO_WORKER_PROCESS_TEST_HOOKS_H_

#include <cstdint>
#include <fstream>
#include <map>
#include <optional>
#include <string>

#include "absl/time/time.h"

namespace rubato {

class TestHooks {
 public:
  // Of this process's environment.
  TestHooks();

  // It is a member, with this rank, from now on.
  void OnMember(int rank);

  // Call it before a computation: sleeps as long as the computation is to take. Time between
  // consecutive computations is deducted, so that they keep their pace.
  void OnCompute(int64_t lineage, int64_t clock, int64_t unit);
  // A block has arrived. Never while OnCompute runs.
  void OnPulled(int64_t clock, int64_t block, int64_t version, int64_t staleness);

 private:
  std::optional<int64_t> hangs_at_unit_;
  struct Pace {
    absl::Duration each, more;  // more: of the first
    bool exponential = false;
  };
  std::map<int, Pace> compute_;  // by rank; -1: the others
  std::string trace_folder_;
  Pace pace_;                                   // of this rank
  absl::Time computed_ = absl::InfinitePast();  // when the last computation should have ended
  int rank_ = -1;
  uint64_t computations_ = 0;
  std::ofstream trace_;
};

}  // namespace rubato

#endif  // RUBATO_WORKER_PROCESS_TEST_HOOKS_H_
