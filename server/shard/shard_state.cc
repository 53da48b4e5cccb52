#include "server/shard/shard_state.h"

#include <algorithm>

namespace rubato {

ShardState StateOf(const std::vector<BlockLedger>& ledgers, size_t ranks) {
  ShardState state;
  if (ledgers.empty()) return state;
  state.lowest = ledgers[0].version;
  state.clocks.assign(ranks, BlockLedger::kNobody);
  std::vector<const UnitSet*> units;
  for (const BlockLedger& ledger : ledgers) {
    state.lowest = std::min(state.lowest, ledger.version);
    state.highest = std::max(state.highest, ledger.version);
    for (size_t rank = 0; rank < ranks && rank < ledger.clocks.size(); ++rank) {
      state.clocks[rank] = std::min(state.clocks[rank], ledger.clocks[rank].applied);
    }
    units.push_back(&ledger.units);
  }
  state.units = HeldBy(units);
  return state;
}

}  // namespace rubato
