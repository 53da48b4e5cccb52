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
                                                       const Policy& policy, int64_t first_open) {
  first_open_ = std::max(first_open_, first_open);
  matters_.erase(matters_.begin(), matters_.lower_bound({first_open_}));
  if (question.unit() < first_open_) return std::nullopt;
  Matter& matter = matters_[SubjectOf(question)];
  if (matter.decision.has_value()) {
    Answer again;
    again.decision = *matter.decision;
    again.is_new = false;
    return again;
  }
  matter.asked[shard] = question;
  std::optional<Answer> answer;
  if (question.has_measured()) {
    answer = Judge(matter.asked);
  } else {
    std::map<int, proto::Question> by_shard;
    for (const auto& [id, other] : matter.asked) by_shard[id.number] = other;
    if (std::optional<proto::Decision> decision = policy.Decide(by_shard)) {
      answer.emplace().decision = *decision;
    }
  }
  if (!answer.has_value()) return std::nullopt;
  answer->decision.set_unit(question.unit());
  matter = {{}, answer->decision};
  return answer;
}

void Decisions::BeginLineage() {
  first_open_ = 0;
  matters_.clear();
}

std::optional<Decisions::Answer> Decisions::Judge(const Asked& asked) const {
  Answer answer;
  proto::Decision::Verdict* const verdict = answer.decision.mutable_verdict();
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
    verdict->set_apply(false);
  } else if (job_.optimizer().has_clip_grad_norm() && !squares.complete()) {
    answer.is_incomplete = true;
  } else if (job_.optimizer().has_clip_grad_norm()) {
    const int64_t weight = asked.begin()->second.measured().weight();
    verdict->set_factor(ClipFactor(squares.sum(), weight, job_.optimizer().clip_grad_norm()));
  }
  return answer;
}

}  // namespace rubato
