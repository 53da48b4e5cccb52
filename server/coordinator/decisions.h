// Part of the coordinator's core: makes one decision for all shards on a unit of work on which a
// single shard may not decide. On a step that has been measured it is the job's verdict (clipping
// by the norm of the whole gradient, values that are not finite); on any other question it is the
// mode's. A unit may have one of each.
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
  // Of `shards`, those that hold blocks measure. `trainable`: the number of values of the flat
  // vector that are parameters, over which the norm is computed.
  Decisions(const proto::Job& job, const Placement& placement, const std::vector<ShardId>& shards,
            int64_t trainable);

  struct Answer {
    proto::Decision decision;
    bool is_new = true;          // for all shards; else for the one that asked again
    int64_t non_finite = -1;     // where in the flat vector; below 0: nowhere
    bool is_incomplete = false;  // it cannot be clipped: some shard has not told of all it has
  };
  // Nullopt: the questions of other shards have to arrive first. All shards are done with the units
  // below `first_open`, so decisions on these are dropped.
  std::optional<Answer> OnQuestion(const ShardId& shard, const proto::Question& question,
                                   const Policy& policy, int64_t first_open);
  // Of the term before: it stands.
  void Keep(const proto::Decision& decision) { matters_[SubjectOf(decision)] = {{}, decision}; }
  // Units are counted anew.
  void BeginLineage();

 private:
  using Asked = std::map<ShardId, proto::Question>;
  struct Matter {
    Asked asked;
    std::optional<proto::Decision> decision;
  };
  // The job's verdict, once all that measure have asked.
  std::optional<Answer> Judge(const Asked& asked) const;

  const proto::Job job_;
  std::vector<ShardId> shards_;  // that measure
  const int64_t trainable_;
  int64_t first_open_ = 0;
  std::map<Subject, Matter> matters_;  // of units from there on
};

}  // namespace rubato

#endif  // RUBATO_SERVER_COORDINATOR_DECISIONS_H_
