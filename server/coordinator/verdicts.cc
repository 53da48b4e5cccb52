#include "server/coordinator/verdicts.h"

namespace rubato {

Verdicts::Verdicts(const proto::Job& job, const Placement& placement, int64_t trainable)
    : job_(job), measuring_(placement.owners()), trainable_(trainable) {}

std::optional<Verdicts::Decision> Verdicts::OnMeasured(const proto::ShardMeasured& measured) {
  Measured& step = measured_.try_emplace(measured.step(), trainable_).first->second;
  if (measured.has_non_finite() &&
      (step.non_finite < 0 || measured.non_finite() < step.non_finite)) {
    step.non_finite = measured.non_finite();
  }
  for (const proto::ShardMeasured::Node& node : measured.nodes()) {
    step.squares.AddNode({{node.begin(), node.end()}, node.sum()});
  }
  if (++step.shards < measuring_) return std::nullopt;

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
