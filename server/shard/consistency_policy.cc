#include "server/shard/consistency_policy.h"

#include <iterator>

#include "absl/strings/str_format.h"

namespace rubato {
namespace {

// Whether one of the disjoint nodes has a leaf of `node`.
bool Overlaps(const std::map<int64_t, BlockLedger::Pending>& nodes, Range node) {
  const auto next = nodes.lower_bound(node.begin);
  if (next != nodes.end() && next->first < node.end) return true;
  return next != nodes.begin() && std::prev(next)->second.contribution.node.end > node.begin;
}

}  // namespace

absl::StatusOr<bool> ConsistencyPolicy::Admit(const BlockLedger& ledger,
                                              const Contribution& contribution) const {
  // A part of a short step may be empty; a whole update is divided by its weight.
  if (contribution.samples <= 0 && (on_arrival() || contribution.node == tree_.root())) {
    return absl::InvalidArgumentError("contribution is of 0 samples");
  }
  if (on_arrival()) {
    if (contribution.read_version < 0 || contribution.read_version > ledger.version) {
      return absl::InvalidArgumentError(
          absl::StrFormat("contribution was computed at version %d; the block is at version %d",
                          contribution.read_version, ledger.version));
    }
    const int64_t expected = ledger.clocks[contribution.worker].accepted;
    if (contribution.clock > expected) {
      return absl::InvalidArgumentError(
          absl::StrFormat("contribution has clock %d of worker %d; expected at most %d",
                          contribution.clock, contribution.worker, expected));
    }
    return contribution.clock == expected;
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

bool ConsistencyPolicy::HasOwn(const BlockLedger& ledger, uint32_t worker, int64_t clock) const {
  return worker == kObserver || !on_arrival() || ledger.clocks[worker].applied >= clock;
}

bool ConsistencyPolicy::MayRead(const BlockLedger& ledger, uint32_t worker, int64_t clock) const {
  if (!on_arrival()) return ledger.version >= clock;
  if (worker == kObserver) return true;
  if (!HasOwn(ledger, worker, clock)) return false;
  return mode_ == proto::View::MODE_ASYNC || ledger.slowest >= clock - staleness_;
}

bool ConsistencyPolicy::MayApply(const BlockLedger& ledger) const {
  if (on_arrival()) return !ledger.queue.empty();
  return !ledger.nodes.empty() && ledger.nodes.begin()->second.contribution.node == tree_.root();
}

}  // namespace rubato
