// Interface for watching a simulation: laws and invariants are checked against what happens, not
// against what the cores report.
#ifndef RUBATO_TOOLS_SIMULATOR_OBSERVER_H_
#define RUBATO_TOOLS_SIMULATOR_OBSERVER_H_

#include <cstdint>

#include "common/frames/frame.h"
#include "proto/view.pb.h"
#include "server/coordinator/assignments.h"
#include "tools/simulator/event_queue.h"
#include "tools/simulator/symbol.h"

namespace rubato {

class Observer {
 public:
  virtual ~Observer() = default;
  // The observer of events of this term; null: none, the term is over.
  virtual Observer* OfTerm(uint32_t /*term*/) { return this; }
  // A block has been updated to `version`. `contribution` is the push that did it, on arrival; in
  // sync that of one part.
  virtual void OnApplied(int64_t /*block*/, const Frame& /*contribution*/,
                         const UpdateTerms& /*terms*/, int64_t /*version*/, uint64_t /*gradient*/,
                         uint64_t /*value*/) {}
  // A decision has left out the update that would have produced `version`; `contribution` as above.
  virtual void OnSkipped(int64_t /*block*/, const Frame& /*contribution*/, int64_t /*samples*/,
                         int64_t /*version*/) {}
  // A worker has received a block that it will compute with.
  virtual void OnTaken(int64_t /*block*/, const WorkerId& /*worker*/, uint32_t /*lineage*/,
                       int64_t /*version*/) {}
  // A worker says that it has nothing left to compute.
  virtual void OnRetired(const WorkerId& /*worker*/, uint32_t /*lineage*/) {}
  // On arrival: a worker asks for contributions; and has been given some.
  virtual void OnAsked(const WorkerId& /*worker*/, uint32_t /*lineage*/, int64_t /*count*/) {}
  virtual void OnGiven(const WorkerId& /*worker*/, uint32_t /*lineage*/, int64_t /*count*/) {}
  // A worker begins or ends a computation.
  virtual void OnComputeBegins(const WorkerId& /*worker*/, uint32_t /*lineage*/, int64_t /*unit*/,
                               int64_t /*clock*/, SimTime /*now*/) {}
  virtual void OnComputeEnds(const WorkerId& /*worker*/, uint32_t /*lineage*/, int64_t /*unit*/,
                             int64_t /*clock*/, SimTime /*now*/) {}
  // On arrival: or leaves out what it has computed.
  virtual void OnLeftOut(uint32_t /*lineage*/, int64_t /*unit*/) {}
  // Worker `index`, or a shard (below 0), has found a gradient that is not finite, and the job is
  // to end with it.
  virtual void OnDiverged(int /*index*/) {}
  // A worker sends what it has computed for a block.
  virtual void OnPushed(const Frame& /*frame*/) {}
  // The view is about to hold.
  virtual void OnView(const proto::View& /*view*/, SimTime /*now*/) {}
};

}  // namespace rubato

#endif  // RUBATO_TOOLS_SIMULATOR_OBSERVER_H_
