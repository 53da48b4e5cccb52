// Who computes which micro-batches of which step (sync). The division of a step does not change
// until the step is done, with one exception: the micro-batches of a lost worker are granted to
// others, in the same ranges or in smaller ones. So the same messages complete a shard that has
// some of the lost worker's sums and one that has none.
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

  // From `from_step` on, `members` (at least one) share the micro-batches evenly. In the steps from
  // `lowest` to `from_step`, they also get what was granted to workers that are not members.
  void Change(int64_t lowest, int64_t from_step, const std::vector<WorkerId>& members);

  void AddTo(proto::View* view) const;
  // Whether the worker is to compute anything.
  bool HasAny(const WorkerId& worker) const;
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
