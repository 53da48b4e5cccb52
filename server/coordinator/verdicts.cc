#include "server/coordinator/verdicts.h"

namespace rubato {

Verdicts::Verdicts(const proto::Job& job, const Placement& placement,
                   const std::vector<ShardId>& shards, int64_t trainable)
    : job_(job), trainable_(trainable) {
  for (const ShardId& shard : shards) {
    if (!placement.Blocks(shard.number).empty()) shards_.push_back(shard);
  }
}

std::optional<Verdicts::Decision> Verdicts::OnMeasured(const ShardId& shard,
                                                       const proto::ShardMeasured& measured) {
  const auto [entry, is_first] = measured_.try_emplace(measured.step(), trainable_);
  Measured& step = entry->second;
  if (is_first) step.call.Ask(shards_);
  if (!step.call.OnAnswer(shard)) return std::nullopt;
  if (measured.has_non_finite() &&
      (step.non_finite < 0 || measured.non_finite() < step.non_finite)) {
    step.non_finite = measured.non_finite();
  }
  for (const proto::ShardMeasured::Node& node : measured.nodes()) {
    step.squares.AddNode({{node.begin(), node.end()}, node.sum()});
  }
  if (!step.call.complete()) return std::nullopt;

  Decision decision;
  decision.verdict.set_step(measured.step());
  decision.non_finite = step.non_finite;
  if (step.non_finite >= 0) {
    decision.verdict.set_apply(false);
  } else if (job_.optimizer().has_clip_grad_norm() && step.squares.complete()) {
    decision.verdict.set_factor(
        ClipFactor(step.squares.sum(), measured.samples(), job_.optimizer().clip_grad_norm()));
  }
  measured_.erase(measured.step());
  return decision;
}

}  // namespace rubato
