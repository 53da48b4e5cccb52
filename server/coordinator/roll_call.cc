#include "server/coordinator/roll_call.h"

namespace rubato {

void RollCall::Ask(const std::vector<ShardId>& shards) {
  missing_ = std::set<ShardId>(shards.begin(), shards.end());
}

bool RollCall::OnAnswer(const ShardId& shard) { return missing_.erase(shard) > 0; }

}  // namespace rubato
