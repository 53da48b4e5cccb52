// Part of the coordinator's core: the one decision over all shards on a step that may not be
// applied as it is (clipping by the norm of the whole gradient, values that are not finite).
#ifndef RUBATO_SERVER_COORDINATOR_VERDICTS_H_
#define RUBATO_SERVER_COORDINATOR_VERDICTS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "common/space/placement.h"
#include "common/space/sum_of_squares.h"
#include "proto/cluster.pb.h"
#include "proto/job.pb.h"
#include "server/coordinator/roll_call.h"

namespace rubato {

class Verdicts {
 public:
  // Those of `shards` measure that hold blocks. `trainable`: values of the flat vector that are
  // parameters, whose norm is meant.
  Verdicts(const proto::Job& job, const Placement& placement, const std::vector<ShardId>& shards,
           int64_t trainable);

  struct Decision {
    proto::Verdict verdict;
    int64_t non_finite = -1;  // where in the flat vector; below 0: nowhere
  };

  // What all shards make of a step, when the last of them has measured it.
  std::optional<Decision> OnMeasured(const ShardId& shard,
                                     const proto::ShardMeasured& measured);

 private:
  struct Measured {
    explicit Measured(int64_t values) : squares(values) {}
    RollCall call;
    int64_t non_finite = -1;
    SumOfSquares squares;
  };

  const proto::Job job_;
  std::vector<ShardId> shards_;  // that measure
  const int64_t trainable_;
  std::map<int64_t, Measured> measured_;  // by step
};

}  // namespace rubato

#endif  // RUBATO_SERVER_COORDINATOR_VERDICTS_H_
