#include "server/consistency_policy.h"

#include "absl/strings/str_format.h"

namespace rubato {

absl::StatusOr<bool> ConsistencyPolicy::Admit(const BlockLedger& ledger,
                                              const Contribution& contribution) const {
  // A part of a short step may be empty; a whole update is divided by its weight.
  if (contribution.samples <= 0 && (on_arrival() || contribution.node == tree_.root())) {
    return absl::InvalidArgumentError("contribution is of 0 samples");
  }
  if (on_arrival()) {
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
  if (contribution.clock < ledger.version) return false;
  for (const BlockLedger::Pending& pending : ledger.pending) {
    const Range& node = pending.contribution.node;
    if (node.begin < contribution.node.end && contribution.node.begin < node.end) return false;
  }
  return true;
}

bool ConsistencyPolicy::MayRead(const BlockLedger& ledger, uint32_t worker, int64_t clock) const {
  if (!on_arrival()) return ledger.version >= clock;
  return worker == kObserver || ledger.clocks[worker].applied >= clock;
}

bool ConsistencyPolicy::MayApply(const BlockLedger& ledger) const {
  if (ledger.pending.empty()) return false;
  return on_arrival() || ledger.pending.front().contribution.node == tree_.root();
}

}  // namespace rubato
