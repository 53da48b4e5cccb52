// Part of the coordinator's core: the one decision over all shards on a unit of work on which they
// may not decide alone. On a step that has been measured (clipping by the norm of the whole
// gradient, values that are not finite) it is the job's; on any other question it is the mode's.
#ifndef RUBATO_SERVER_COORDINATOR_DECISIONS_H_
#define RUBATO_SERVER_COORDINATOR_DECISIONS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "common/consistency/policy.h"
#include "common/space/placement.h"
#include "proto/cluster.pb.h"
#include "proto/job.pb.h"
#include "server/coordinator/roll_call.h"

namespace rubato {

class Decisions {
 public:
  // Those of `shards` measure that hold blocks. `trainable`: values of the flat vector that are
  // parameters, whose norm is meant.
  Decisions(const proto::Job& job, const Placement& placement, const std::vector<ShardId>& shards,
            int64_t trainable);

  struct Answer {
    proto::Decision decision;
    bool is_new = true;          // for all shards; else for the one that asked again
    int64_t non_finite = -1;     // where in the flat vector; below 0: nowhere
    bool is_incomplete = false;  // it cannot be clipped: some shard has not told of all it has
  };
  // nullopt: what other shards ask has to come first. A decision is kept until the next one.
  std::optional<Answer> OnQuestion(const ShardId& shard, const proto::Question& question,
                                   const Policy& policy);

 private:
  using Asked = std::map<ShardId, proto::Question>;
  // The job's, once all that measure have asked.
  std::optional<Answer> Judge(const Asked& asked) const;

  const proto::Job job_;
  std::vector<ShardId> shards_;  // that measure
  const int64_t trainable_;
  std::map<int64_t, Asked> asked_;  // by unit, of those that are not decided
  std::optional<proto::Decision> last_;
};

}  // namespace rubato

#endif  // RUBATO_SERVER_COORDINATOR_DECISIONS_H_
