#include "tests/backup_workers/backup_policy.h"

#include <algorithm>
#include <iterator>

#include "tests/backup_workers/backup_workers.pb.h"

namespace rubato {
namespace {

bool IsHere(const BlockLedger& ledger, Range part) {
  int64_t end = part.begin;  // of what is here without a gap
  for (const auto& [leaf, node] : ledger.nodes) {
    if (leaf <= end) end = std::max(end, node.leaves.end);
  }
  return end >= part.end;
}

bool Names(const proto::Decision& decision, int64_t leaf) {
  const auto& named = decision.GetRepeatedExtension(testing::named);
  return std::any_of(named.begin(), named.end(), [leaf](const testing::Leaves& leaves) {
    return leaves.begin() <= leaf && leaf < leaves.end();
  });
}

}  // namespace

std::vector<Range> PartsOf(const proto::View& view, int64_t step) {
  std::vector<Range> parts;
  for (const proto::Assignment& assignment : view.assignments()) {
    if (assignment.from_step() > step) break;
    parts.clear();
    for (const proto::Grant& grant : assignment.grants()) {
      parts.push_back({grant.first_leaf(), grant.end_leaf()});
    }
  }
  return parts;
}

absl::StatusOr<bool> BackupPolicy::Admit(const BlockLedger& ledger,
                                         const Contribution& contribution,
                                         const ShardTerms& terms) const {
  const absl::StatusOr<bool> admitted = Steps::Admit(ledger, contribution, terms);
  if (!admitted.ok() || !*admitted) return admitted;
  const proto::Decision* const decision = terms.DecisionOn(ledger.version);
  return decision == nullptr || Names(*decision, contribution.node.begin);
}

NextChange BackupPolicy::Next(const ShardTerms& terms, BlockLedger* ledger) const {
  const std::vector<Range> parts = PartsOf(view_, ledger->version);
  const proto::Decision* decision = terms.DecisionOn(ledger->version);
  if (decision == nullptr) {
    if (parts.size() < 2) return Steps::Next(terms, ledger);
    const auto missing = std::count_if(parts.begin(), parts.end(),
                                       [ledger](Range part) { return !IsHere(*ledger, part); });
    if (missing > 1) return {};
    return {NextChange::Kind::kAsk, ledger->version};
  }
  for (const auto& [leaf, node] : ledger->nodes) {
    if (!Names(*decision, leaf)) return {NextChange::Kind::kDrop, leaf};
  }
  for (const testing::Leaves& leaves : decision->GetRepeatedExtension(testing::named)) {
    if (!IsHere(*ledger, {leaves.begin(), leaves.end()})) return {};
  }
  const auto first = ledger->nodes.begin();
  if (ledger->nodes.size() > 1) {
    return {NextChange::Kind::kSum, first->first, std::next(first)->first};
  }
  return NextOfWhole(terms, *ledger);
}

void BackupPolicy::Ask(const BlockLedger& ledger, proto::Question* question) const {
  std::vector<Range> here;
  const std::vector<Range> parts = PartsOf(view_, ledger.version);
  std::copy_if(parts.begin(), parts.end(), std::back_inserter(here),
               [&](Range part) { return IsHere(ledger, part); });
  if (here.size() == parts.size()) here.pop_back();
  for (const Range part : here) {
    testing::Leaves* leaves = question->AddExtension(testing::here);
    leaves->set_begin(part.begin);
    leaves->set_end(part.end);
  }
}

std::optional<proto::Decision> BackupPolicy::Decide(
    const std::map<int, proto::Question>& by_shard) const {
  proto::Decision decision;
  *decision.MutableRepeatedExtension(testing::named) =
      by_shard.begin()->second.GetRepeatedExtension(testing::here);
  return decision;
}

std::unique_ptr<const Policy> PolicyWithBackup(const proto::View& view) {
  if (!view.mode().HasExtension(testing::backup_workers)) return BuiltInPolicy(view);
  return std::make_unique<BackupPolicy>(view);
}

}  // namespace rubato
