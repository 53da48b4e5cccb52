// Part of the coordinator's core: whether a term can go on with the values that all shards have
// kept of the one before, and what a checkpoint of these would say.
//
// Nothing reaches a shard any more when it tells of its values, so they are as after a Close. In
// sync a block that has taken a step and one that has not may be one step apart, not more: the next
// step needs the last version of all. The first can still be read at the version before
// (docs/views.md), so the step is computed once more for the second.
//
// Some shards may have had a view that others have not: the next lineage, or the first view of a
// term that was to go on with what all had kept. Nobody can have computed anything in it, since
// that needs an answer of all shards; so what holds is that view, and the others are where it
// begins.
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

// FailedPrecondition, saying why, if the shards of `registry`, which are all here, cannot go on
// with what they have kept: all need the blocks of `placement`, at one place of the last term that
// has begun, or as that has left them. `state` is of the terms before.
absl::StatusOr<KeptTerm> KeptByAll(const proto::Job& job, const proto::RunState& state,
                                   const Placement& placement, const Registry& registry);

}  // namespace rubato

#endif  // RUBATO_SERVER_COORDINATOR_KEPT_VALUES_H_
