// The report of a closed shard to the coordinator, on which the next view is based.
#ifndef RUBATO_SERVER_SHARD_SHARD_STATE_H_
#define RUBATO_SERVER_SHARD_SHARD_STATE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/consistency/ledger.h"
#include "common/consistency/unit_set.h"

namespace rubato {

// Of all blocks, of which there is at least one.
struct ShardState {
  int64_t lowest = 0;  // version
  int64_t highest = 0;
  // On arrival, by rank: the least number of a worker's clocks that a block holds.
  std::vector<int64_t> clocks;
  UnitsHeld units;  // on arrival: the contributions that the blocks hold
};

ShardState StateOf(const std::vector<BlockLedger>& ledgers, size_t ranks);

}  // namespace rubato

#endif  // RUBATO_SERVER_SHARD_SHARD_STATE_H_
