// Part of the coordinator's core: whether a term can go on with the values that all shards have
// kept of the one before, and what a checkpoint of these would say.
//
// When a shard reports its values, it receives no more messages, so the values are as after a
// Close. In sync, blocks may be at most one step apart, because the next step needs the last
// version of all blocks. A block that is one step ahead can still be read at its previous version
// (docs/views.md), so the step is computed again for the blocks behind.
//
// Some shards may have received a view that others have not: that of the next lineage, or the first
// view of a term that was to continue with kept values. No worker can have computed anything in it,
// since that needs an answer of all shards. So that view is in force, and the other shards are at
// its beginning.
#ifndef RUBATO_SERVER_COORDINATOR_KEPT_VALUES_H_
#define RUBATO_SERVER_COORDINATOR_KEPT_VALUES_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "common/space/placement.h"
#include "proto/checkpoint.pb.h"
#include "proto/cluster.pb.h"
#include "proto/job.pb.h"
#include "proto/run_state.pb.h"
#include "server/coordinator/registry.h"

namespace rubato {

struct KeptTerm {
  // In sync of the lowest version.
  proto::Manifest manifest;
  // On units that some block may not be done with.
  std::vector<proto::Decision> decisions;
};

// The last lineage of that term that one of the shards here has heard of; 0 if none has.
uint32_t LastLineage(uint32_t term, const Registry& registry);

// FailedPrecondition, with the reason, if the shards of `registry` (all are here) cannot continue
// with their kept values: all of them need the blocks of `placement`, at one point of the last term
// that has begun, or as that term has left them. `state` describes the earlier terms.
absl::StatusOr<KeptTerm> KeptByAll(const proto::Job& job, const proto::RunState& state,
                                   const Placement& placement, const Registry& registry);

}  // namespace rubato

#endif  // RUBATO_SERVER_COORDINATOR_KEPT_VALUES_H_
