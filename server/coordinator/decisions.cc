#include "server/coordinator/decisions.h"

#include <algorithm>

#include "common/space/sum_of_squares.h"

namespace rubato {

Decisions::Decisions(const proto::Job& job, const Placement& placement,
                     const std::vector<ShardId>& shards, int64_t trainable)
    : job_(job), trainable_(trainable) {
  for (const ShardId& shard : shards) {
    if (!placement.Blocks(shard.number).empty()) shards_.push_back(shard);
  }
}

std::optional<Decisions::Answer> Decisions::OnQuestion(const ShardId& shard,
                                                       const proto::Question& question,
                                                       const Policy& policy) {
  const int64_t unit = question.unit();
  if (last_.has_value() && unit <= last_->unit()) {
    if (unit < last_->unit()) return std::nullopt;  // it has been superseded
    Answer again;
    again.decision = *last_;
    again.is_new = false;
    return again;
  }
  Asked& asked = asked_[unit];
  asked[shard] = question;
  std::optional<Answer> answer;
  if (question.has_measured()) {
    answer = Judge(asked);
  } else {
    std::map<int, proto::Question> by_shard;
    for (const auto& [id, other] : asked) by_shard[id.number] = other;
    if (std::optional<proto::Decision> decision = policy.Decide(by_shard)) {
      answer.emplace().decision = *decision;
    }
  }
  if (!answer.has_value()) return std::nullopt;
  answer->decision.set_unit(unit);
  last_ = answer->decision;
  asked_.erase(asked_.begin(), asked_.upper_bound(unit));
  return answer;
}

std::optional<Decisions::Answer> Decisions::Judge(const Asked& asked) const {
  Answer answer;
  SumOfSquares squares(trainable_);
  for (const ShardId& shard : shards_) {
    const auto question = asked.find(shard);
    if (question == asked.end()) return std::nullopt;
    const proto::Question::Measured& measured = question->second.measured();
    if (measured.has_non_finite() &&
        (answer.non_finite < 0 || measured.non_finite() < answer.non_finite)) {
      answer.non_finite = measured.non_finite();
    }
    for (const proto::Question::Measured::Node& node : measured.nodes()) {
      squares.AddNode({{node.begin(), node.end()}, node.sum()});
    }
  }
  if (answer.non_finite >= 0) {
    answer.decision.set_apply(false);
  } else if (job_.optimizer().has_clip_grad_norm() && !squares.complete()) {
    answer.is_incomplete = true;
  } else if (job_.optimizer().has_clip_grad_norm()) {
    const int64_t samples = asked.begin()->second.measured().samples();
    answer.decision.set_factor(
        ClipFactor(squares.sum(), samples, job_.optimizer().clip_grad_norm()));
  }
  return answer;
}

}  // namespace rubato
