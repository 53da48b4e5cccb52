// Part of the coordinator's core: workers that register when the training is over, while the last
// checkpoint and the result are written. They wait for the end and are no peers: no decision counts
// them, nobody waits for them or judges their silence, and they are given nothing to do.
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
  // Its call is broken, or it has said something. An honest one says that it leaves or fails, and
  // ends; what comes of that, if anything.
  void OnGone(PeerId id) { waiting_.erase(id); }
  // Tells all how the job ends, or that it goes back, when they may register anew. None is left.
  void Tell(const proto::Stop& stop, coordinator::Outcomes* out);

 private:
  const int most_;
  std::set<PeerId> waiting_;
};

}  // namespace rubato

#endif  // RUBATO_SERVER_COORDINATOR_LATECOMERS_H_
