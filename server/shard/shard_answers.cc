#include "server/shard/shard_answers.h"

#include <algorithm>
#include <vector>

#include "common/consistency/block_units.h"

namespace rubato {

proto::ShardClosed ClosedMessage(const Shard& shard) {
  proto::ShardClosed closed;
  closed.set_view(shard.view());
  if (shard.blocks().empty()) return closed;
  const ShardState state = shard.State();
  closed.set_lowest_version(state.lowest);
  closed.set_highest_version(state.highest);
  for (size_t rank = 0; rank < state.clocks.size(); ++rank) {
    proto::ShardClosed::Clock* clock = closed.add_clocks();
    clock->set_rank(static_cast<int32_t>(rank));
    clock->set_applied(state.clocks[rank]);
  }
  SetUnits(state.units.by_all, &closed);
  for (const int64_t unit : state.units.Partial()) closed.add_units_partial(unit);
  return closed;
}

proto::ShardReport ReportMessage(const Shard& shard) {
  proto::ShardReport report;
  std::vector<int64_t> counts;
  for (int64_t block = shard.blocks().begin; block < shard.blocks().end; ++block) {
    const BlockLedger& ledger = shard.ledger(block);
    proto::ShardReport::Block* out = report.add_blocks();
    out->set_block(block);
    out->set_version(ledger.version);
    out->set_samples(ledger.samples);
    out->set_staleness_sum(ledger.staleness_sum);
    out->set_staleness_max(ledger.staleness_max);
    counts.resize(std::max(counts.size(), ledger.staleness_counts.size()));
    for (size_t i = 0; i < ledger.staleness_counts.size(); ++i) {
      counts[i] += ledger.staleness_counts[i];
    }
  }
  for (const int64_t count : counts) report.add_staleness_counts(count);
  report.set_duplicates(shard.duplicates());
  return report;
}

proto::BlockState BlockStateMessage(const Shard& shard, int64_t block) {
  const BlockLedger& ledger = shard.ledger(block);
  proto::BlockState state;
  state.set_block(block);
  state.set_version(ledger.version);
  state.set_samples(ledger.samples);
  state.set_skipped(ledger.skipped);
  SetUnits(ledger.units, &state);
  return state;
}

}  // namespace rubato
