#include "server/shard/shard_state.h"

#include <algorithm>

namespace rubato {

ShardState StateOf(const std::vector<BlockLedger>& ledgers, size_t ranks) {
  ShardState state;
  if (ledgers.empty()) return state;
  state.lowest = ledgers[0].version;
  state.clocks.assign(ranks, BlockLedger::kNobody);
  int64_t min_below = ledgers[0].units.below(), max_below = min_below;
  std::set<int64_t> candidates;
  for (const BlockLedger& ledger : ledgers) {
    state.lowest = std::min(state.lowest, ledger.version);
    state.highest = std::max(state.highest, ledger.version);
    for (size_t rank = 0; rank < ranks && rank < ledger.clocks.size(); ++rank) {
      state.clocks[rank] = std::min(state.clocks[rank], ledger.clocks[rank].applied);
    }
    min_below = std::min(min_below, ledger.units.below());
    max_below = std::max(max_below, ledger.units.below());
    candidates.insert(ledger.units.above().begin(), ledger.units.above().end());
  }
  for (int64_t unit = min_below; unit < max_below; ++unit) candidates.insert(unit);
  std::vector<int64_t> whole;
  for (const int64_t unit : candidates) {
    const bool everywhere =
        std::all_of(ledgers.begin(), ledgers.end(),
                    [unit](const BlockLedger& ledger) { return ledger.units.Contains(unit); });
    if (everywhere) {
      whole.push_back(unit);
    } else {
      state.partial.insert(unit);
    }
  }
  state.whole = UnitSet(min_below, whole);
  return state;
}

}  // namespace rubato
