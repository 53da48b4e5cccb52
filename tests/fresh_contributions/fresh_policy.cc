#include "tests/fresh_contributions/fresh_policy.h"

#include <algorithm>

#include "tests/fresh_contributions/fresh_contributions.pb.h"

namespace rubato {
namespace {

// When its turn comes, after those before it in the queue.
int64_t StalenessOf(const BlockLedger& ledger, int64_t unit) {
  int64_t version = ledger.version;
  for (const BlockLedger::Pending& pending : ledger.queue) {
    if (pending.contribution.unit == unit) return version - pending.contribution.read_version;
    if (!pending.counted_before) ++version;
  }
  return 0;
}

}  // namespace

FreshPolicy::FreshPolicy(const proto::View& view)
    : Arrivals(view),
      max_staleness_(view.mode().GetExtension(testing::fresh_contributions).max_staleness()),
      shards_(std::count_if(view.shards().begin(), view.shards().end(), [](const auto& shard) {
        return shard.first_block() < shard.end_block();
      })) {}

NextChange FreshPolicy::Next(const ShardTerms& terms, BlockLedger* ledger) const {
  for (const BlockLedger::Pending& pending : ledger->queue) {
    const int64_t unit = pending.contribution.unit;
    if (pending.counted_before || terms.DecisionOn(unit) != nullptr) continue;
    if (terms.asked.count(unit) == 0) return {NextChange::Kind::kAsk, unit};
  }
  const NextChange next = Arrivals::Next(terms, ledger);
  if (next.kind != NextChange::Kind::kApply) return next;
  const int64_t unit = ledger->queue.front().contribution.unit;
  const proto::Decision* const decision = terms.DecisionOn(unit);
  if (decision == nullptr) return {};
  return decision->GetExtension(testing::left_out) ? NextChange{NextChange::Kind::kSkip} : next;
}

void FreshPolicy::Ask(const BlockLedger& ledger, proto::Question* question) const {
  question->SetExtension(testing::staleness, StalenessOf(ledger, question->unit()));
}

std::optional<proto::Decision> FreshPolicy::Decide(
    const std::map<int, proto::Question>& by_shard) const {
  if (static_cast<int64_t>(by_shard.size()) < shards_) return std::nullopt;
  proto::Decision decision;
  const bool is_stale = std::any_of(by_shard.begin(), by_shard.end(), [this](const auto& asked) {
    return asked.second.GetExtension(testing::staleness) > max_staleness_;
  });
  decision.SetExtension(testing::left_out, is_stale);
  return decision;
}

std::unique_ptr<const Policy> PolicyWithFreshness(const proto::View& view) {
  if (!view.mode().HasExtension(testing::fresh_contributions)) return BuiltInPolicy(view);
  return std::make_unique<FreshPolicy>(view);
}

}  // namespace rubato
