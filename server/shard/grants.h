// Who computes which micro-batches of which step, as a view tells a shard.
#ifndef RUBATO_SERVER_SHARD_GRANTS_H_
#define RUBATO_SERVER_SHARD_GRANTS_H_

#include <cstdint>
#include <vector>

#include "common/space/flat_space.h"
#include "proto/view.pb.h"

namespace rubato {

class Grants {
 public:
  Grants() = default;
  explicit Grants(const proto::View& view);

  // Whether the view grants `node` of `step` to other workers than `rank`, or to nobody. False for
  // steps that the view does not mention, which are late or not steps.
  bool Denies(uint32_t rank, int64_t step, Range node) const;

 private:
  struct Grant {
    int32_t rank;
    Range leaves;
  };
  struct Division {
    int64_t from_step;
    std::vector<Grant> grants;  // in order
  };

  std::vector<Division> divisions_;  // each until the next begins
};

}  // namespace rubato

#endif  // RUBATO_SERVER_SHARD_GRANTS_H_
