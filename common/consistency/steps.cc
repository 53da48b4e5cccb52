// Contributions that are parts of steps.
#include <iterator>

#include "absl/strings/str_format.h"
#include "common/consistency/policy.h"

namespace rubato {
namespace {

// Whether one of the disjoint nodes has a leaf of `node`.
bool Overlaps(const std::map<int64_t, BlockLedger::Pending>& nodes, Range node) {
  const auto next = nodes.lower_bound(node.begin);
  if (next != nodes.end() && next->first < node.end) return true;
  return next != nodes.begin() && std::prev(next)->second.contribution.node.end > node.begin;
}

// Two pending siblings of the tree, if there are any.
NextChange SumOfSiblings(const ReductionTree& tree, BlockLedger* ledger) {
  while (!ledger->unpaired.empty()) {
    const auto found = ledger->nodes.find(ledger->unpaired.back());
    ledger->unpaired.pop_back();
    if (found == ledger->nodes.end()) continue;
    const Range node = found->second.contribution.node;
    if (node == tree.root()) continue;
    const Range sibling = tree.Sibling(node);
    const auto other = ledger->nodes.find(sibling.begin);
    if (other == ledger->nodes.end() || !(other->second.contribution.node == sibling)) continue;
    return {NextChange::Kind::kSum, node.begin, sibling.begin};
  }
  return {};
}

}  // namespace

Steps::Steps(const proto::View& view)
    : Policy(view),
      view_(view.number()),
      from_step_(view.from_step()),
      verdict_steps_(view.verdict_steps()),
      tree_(view.leaves()) {}

// A step's sum does not depend on who computes it, but on one division of its leaves, which older
// views do not know of later steps.
bool Steps::MayCount(const Contribution& contribution, bool) const {
  return contribution.view >= view_ || contribution.clock < from_step_;
}

absl::StatusOr<bool> Steps::Admit(const BlockLedger& ledger, const Contribution& contribution,
                                  const ShardTerms&) const {
  // A part of a short step may be empty; a whole update is divided by its weight.
  if (contribution.samples <= 0 && contribution.node == tree_.root()) {
    return absl::InvalidArgumentError("contribution is of 0 samples");
  }
  if (contribution.clock > ledger.version) {
    return absl::InvalidArgumentError(
        absl::StrFormat("contribution is for step %d; the block's open step is %d",
                        contribution.clock, ledger.version));
  }
  if (!tree_.IsNode(contribution.node)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "contribution sums micro-batches %d to %d; they are no node of the tree over %d",
        contribution.node.begin, contribution.node.end, tree_.leaves()));
  }
  return contribution.clock == ledger.version && !Overlaps(ledger.nodes, contribution.node);
}

bool Steps::Enter(const Contribution& contribution, PayloadId payload, BlockLedger* ledger) const {
  ledger->has_previous = false;
  ledger->nodes.emplace(contribution.node.begin, BlockLedger::Pending{contribution, payload});
  ledger->unpaired.push_back(contribution.node.begin);
  return true;
}

NextChange Steps::Next(const ShardTerms& terms, BlockLedger* ledger) const {
  if (ledger->nodes.empty()) return {};
  const BlockLedger::Pending& first = ledger->nodes.begin()->second;
  if (!(first.contribution.node == tree_.root())) return SumOfSiblings(tree_, ledger);
  return NextOfWhole(terms, *ledger);
}

NextChange Steps::NextOfWhole(const ShardTerms& terms, const BlockLedger& ledger) const {
  if (ledger.version >= terms.limit) return {};
  NextChange next{NextChange::Kind::kApply};
  if (!verdict_steps_) return next;
  if (!ledger.measured) return {NextChange::Kind::kMeasure};
  const proto::Decision::Verdict* const verdict = terms.VerdictOn(ledger.version);
  if (verdict == nullptr) return {};
  if (!verdict->apply()) return {NextChange::Kind::kSkip};
  next.factor = verdict->factor();
  return next;
}

Contribution Steps::Strike(BlockLedger* ledger) const {
  const Contribution struck = ledger->nodes.begin()->second.contribution;
  ledger->nodes.clear();
  ledger->unpaired.clear();
  ledger->has_previous = true;
  return struck;
}

bool Steps::MayRead(const BlockLedger& ledger, const ShardTerms& terms, uint32_t, int64_t clock,
                    bool) const {
  return clock <= terms.readable && ledger.version >= clock;
}

// A later version than asked for tells the worker that its step is done everywhere.
bool Steps::ReadsPrevious(const BlockLedger& ledger, int64_t clock) const {
  return ledger.has_previous && clock == ledger.version - 1;
}

}  // namespace rubato
