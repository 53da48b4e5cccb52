// Contributions that are parts of steps.
#include <algorithm>
#include <iterator>

#include "absl/strings/str_format.h"
#include "common/consistency/policy.h"

namespace rubato {
namespace {

// Whether one of the disjoint nodes has a leaf of `node`.
bool Overlaps(const absl::btree_map<int64_t, BlockLedger::Node>& nodes, Range node) {
  const auto next = nodes.lower_bound(node.begin);
  if (next != nodes.end() && next->first < node.end) return true;
  return next != nodes.begin() && std::prev(next)->second.leaves.end > node.begin;
}

// Two pending siblings of the tree, if there are any.
NextChange SumOfSiblings(const ReductionTree& tree, BlockLedger* ledger) {
  while (!ledger->unpaired.empty()) {
    const auto found = ledger->nodes.find(ledger->unpaired.back());
    ledger->unpaired.pop_back();
    if (found == ledger->nodes.end()) continue;
    const Range node = found->second.leaves;
    if (node == tree.root()) continue;
    const Range sibling = tree.Sibling(node);
    // Nodes are disjoint: a sibling lies beside.
    const bool is_first = node.begin < sibling.begin;
    if (found == (is_first ? std::prev(ledger->nodes.end()) : ledger->nodes.begin())) continue;
    const auto other = is_first ? std::next(found) : std::prev(found);
    if (!(other->second.leaves == sibling)) continue;
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
  const BlockLedger::Node node{contribution.node, payload, contribution.samples,
                               contribution.weight};
  ledger->nodes.emplace(contribution.node.begin, node);
  ledger->unpaired.push_back(contribution.node.begin);
  return true;
}

NextChange Steps::Next(const ShardTerms& terms, BlockLedger* ledger) const {
  if (ledger->nodes.empty()) return {};
  const BlockLedger::Node& first = ledger->nodes.begin()->second;
  if (!(first.leaves == tree_.root())) return SumOfSiblings(tree_, ledger);
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

void Steps::Strike(BlockLedger* ledger) const {
  ledger->nodes.clear();
  ledger->unpaired.clear();
  ledger->has_previous = true;
}

bool Steps::MayRead(const BlockLedger& ledger, const ShardTerms& terms, uint32_t, int64_t clock,
                    bool) const {
  return clock <= terms.readable && ledger.version >= clock;
}

// A later version than asked for tells the worker that its step is done everywhere.
bool Steps::ReadsPrevious(const BlockLedger& ledger, int64_t clock) const {
  return ledger.has_previous && clock == ledger.version - 1;
}

// The micro-batches of the step that it has been granted and not computed, in the view's order.
std::vector<Range> Steps::Expected(const WorkerLedger& ledger, int64_t step) const {
  std::vector<Range> leaves;
  const proto::Assignment* assignment = nullptr;
  for (const proto::Assignment& candidate : ledger.view.assignments()) {
    if (candidate.from_step() <= step) assignment = &candidate;
  }
  if (assignment == nullptr || step >= ledger.view.until_step()) return leaves;
  const auto done = ledger.computed.find(step);
  for (const proto::Grant& grant : assignment->grants()) {
    const Range range{grant.first_leaf(), grant.end_leaf()};
    if (done != ledger.computed.end() &&
        std::find(done->second.begin(), done->second.end(), range) != done->second.end()) {
      continue;
    }
    leaves.push_back(range);
  }
  return leaves;
}

int64_t Steps::NextStep(const WorkerLedger& ledger) const {
  const proto::View& view = ledger.view;
  for (int i = 0; i < view.assignments_size(); ++i) {
    // Within one division of steps it has something to do in each or in none, but for those that it
    // has computed.
    const int64_t begin = std::max(ledger.applied, view.assignments(i).from_step());
    const int64_t end = std::min(view.until_step(), i + 1 < view.assignments_size()
                                                        ? view.assignments(i + 1).from_step()
                                                        : view.until_step());
    const int64_t most = begin + static_cast<int64_t>(ledger.computed.size());
    for (int64_t step = begin; step < end && step <= most; ++step) {
      if (!Expected(ledger, step).empty()) return step;
    }
  }
  return view.until_step();
}

WorkerTask Steps::NextOf(const WorkerLedger& ledger) const {
  WorkerTask task;
  // Not amid a step: if all others leave too, nobody could finish it, and it could not be saved.
  if (ledger.leaving && ledger.computed.empty()) {
    task.kind = WorkerTask::Kind::kLeave;
    return task;
  }
  task.clock = task.unit = NextStep(ledger);
  if (ledger.have != task.clock) {
    task.kind = WorkerTask::Kind::kPull;
  } else if (task.clock == ledger.view.until_step()) {
    task.kind = WorkerTask::Kind::kIdle;
  } else {
    task.kind = WorkerTask::Kind::kCompute;
    task.leaves = Expected(ledger, task.unit)[0];
    task.nodes = tree_.MaximalNodes(task.leaves);
    task.may_test = task.leaves.begin == 0;
  }
  return task;
}

void Steps::Keep(const WorkerTask& task, WorkerLedger* ledger) const {
  ledger->computed[task.unit].push_back(task.leaves);
}

}  // namespace rubato
