// Who computes which micro-batches of which step (sync). Each step's division stays as it is until
// the step is done, but for one change: what a lost worker had been granted is granted to others,
// as it was or cut finer. So a shard that has some of the lost worker's sums and one that has none
// are both completed by the same messages.
#ifndef RUBATO_SERVER_COORDINATOR_ASSIGNMENTS_H_
#define RUBATO_SERVER_COORDINATOR_ASSIGNMENTS_H_

#include <cstdint>
#include <deque>
#include <vector>

#include "common/space/flat_space.h"
#include "proto/view.pb.h"

namespace rubato {

// A worker: one incarnation of a rank.
struct WorkerId {
  int rank = 0;
  uint32_t incarnation = 0;

  friend bool operator==(const WorkerId& a, const WorkerId& b) {
    return a.rank == b.rank && a.incarnation == b.incarnation;
  }
  friend bool operator<(const WorkerId& a, const WorkerId& b) {
    return a.rank != b.rank ? a.rank < b.rank : a.incarnation < b.incarnation;
  }
};

class Assignments {
 public:
  // Steps of `leaves` micro-batches.
  explicit Assignments(int64_t leaves) : leaves_(leaves) {}

  // From `from_step` on `members` (at least one) share the micro-batches evenly; of the steps
  // before, from `lowest` on, what others had been granted is granted to them.
  void Change(int64_t lowest, int64_t from_step, const std::vector<WorkerId>& members);

  void AddTo(proto::View* view) const;
  // Who is to compute the leaf of the step.
  WorkerId Owner(int64_t step, int64_t leaf) const;

 private:
  struct Grant {
    WorkerId worker;
    Range leaves;
  };
  struct Span {
    int64_t from_step;
    std::vector<Grant> grants;
  };

  void HandOn(const std::vector<WorkerId>& members, std::vector<Grant>* grants) const;

  int64_t leaves_;
  std::deque<Span> spans_;  // each until the next begins
};

}  // namespace rubato

#endif  // RUBATO_SERVER_COORDINATOR_ASSIGNMENTS_H_
