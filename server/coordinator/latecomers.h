// Part of the coordinator's core: workers that register when the training is over, while the last
// checkpoint and the result are written. They wait for the end and do not count as peers: they take
// part in no decision, nobody waits for them or checks their leases, and they get no work.
#ifndef RUBATO_SERVER_COORDINATOR_LATECOMERS_H_
#define RUBATO_SERVER_COORDINATOR_LATECOMERS_H_

#include <set>

#include "proto/cluster.pb.h"
#include "server/coordinator/coordinator_outcome.h"
#include "server/coordinator/registry.h"

namespace rubato {

class Latecomers {
 public:
  // No more than `most` may wait at a time.
  explicit Latecomers(int most) : most_(most) {}

  // False if too many wait.
  bool Add(PeerId id);
  bool Has(PeerId id) const { return waiting_.count(id) > 0; }
  int size() const { return static_cast<int>(waiting_.size()); }
  // Its call is broken, or it has sent a message. A correct worker says that it leaves or fails,
  // and ends. Adds the outcomes of that, if any.
  void OnGone(PeerId id) { waiting_.erase(id); }
  // Tells all how the job ends, or that it goes back, when they may register anew. None is left.
  void Tell(const proto::Stop& stop, coordinator::Outcomes* out);

 private:
  const int most_;
  std::set<PeerId> waiting_;
};

}  // namespace rubato

#endif  // RUBATO_SERVER_COORDINATOR_LATECOMERS_H_
