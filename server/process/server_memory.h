// How much memory a server's process holds: the formulas, in one place.
#ifndef RUBATO_SERVER_PROCESS_SERVER_MEMORY_H_
#define RUBATO_SERVER_PROCESS_SERVER_MEMORY_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "common/space/placement.h"
#include "proto/job.pb.h"

namespace rubato {

// Bytes that are resident.
struct ServerMemory {
  int64_t training = 0;
  // In addition, while a checkpoint is written; for the coordinator also at the end, for the
  // result.
  int64_t checkpoint = 0;
};

// Of the process of `shard`, once every block has been updated, with cluster.workers.start workers
// on the same host. InvalidArgument as Optimizer::Create.
absl::StatusOr<ServerMemory> PlanServerMemory(const proto::Job& job, const Placement& placement,
                                              int shard);

// The same for a dedicated coordinator process. InvalidArgument likewise.
absl::StatusOr<ServerMemory> PlanCoordinatorMemory(const proto::Job& job,
                                                   const Placement& placement);

// Sync: how many sums of one block may wait for others at a time, if `workers` share `leaves`
// micro-batches: two that are siblings in the tree are one.
int64_t MaxSumsHeld(int64_t leaves, int64_t workers);

}  // namespace rubato

#endif  // RUBATO_SERVER_PROCESS_SERVER_MEMORY_H_
