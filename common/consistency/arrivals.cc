// Contributions that are updates of their own, when they arrive.
#include <algorithm>

#include "absl/strings/str_format.h"
#include "common/consistency/policy.h"

namespace rubato {
namespace {

bool IsObserver(const BlockLedger& ledger, uint32_t worker) {
  return worker >= ledger.clocks.size();
}

// Whether all that `worker` itself has sent below `clock` is in the block.
bool HasOwn(const BlockLedger& ledger, uint32_t worker, int64_t clock) {
  return IsObserver(ledger, worker) || ledger.clocks[worker].applied >= clock;
}

}  // namespace

absl::StatusOr<bool> Arrivals::Admit(const BlockLedger& ledger, const Contribution& contribution,
                                     const ShardTerms&) const {
  if (contribution.samples <= 0) {
    return absl::InvalidArgumentError("contribution is of 0 samples");
  }
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

bool Arrivals::Enter(const Contribution& contribution, PayloadId payload,
                     BlockLedger* ledger) const {
  BlockLedger::Pending pending{contribution, payload};
  ++ledger->clocks[contribution.worker].accepted;
  if (ledger->units.Contains(contribution.unit)) pending.counted_before = true;
  ledger->queue.push_back(pending);
  return !pending.counted_before;
}

NextChange Arrivals::Next(const ShardTerms& terms, BlockLedger* ledger) const {
  if (ledger->queue.empty() || terms.closed) return {};
  return {NextChange::Kind::kApply};
}

void Arrivals::Strike(BlockLedger* ledger) const {
  const Contribution applied = ledger->queue.front().contribution;
  const int64_t staleness = ledger->version - applied.read_version;
  ledger->clocks[applied.worker].staleness = staleness;
  ledger->staleness_sum += staleness;
  ledger->staleness_max = std::max(ledger->staleness_max, staleness);
  const auto counted = static_cast<size_t>(std::clamp<int64_t>(staleness, 0, kMostStaleness));
  std::vector<int64_t>& counts = ledger->staleness_counts;
  counts.resize(std::max(counts.size(), counted + 1));
  ++counts[counted];
  ledger->units.Insert(applied.unit);
  ledger->queue.pop_front();
  ledger->MoveClock(applied.worker);
}

bool Arrivals::Settle(BlockLedger* ledger) const {
  bool moved = false;
  while (!ledger->queue.empty() && ledger->queue.front().counted_before) {
    const uint32_t worker = ledger->queue.front().contribution.worker;
    ledger->queue.pop_front();
    ledger->MoveClock(worker);
    moved = true;
  }
  return moved;
}

bool Arrivals::MayRead(const BlockLedger& ledger, const ShardTerms&, uint32_t worker, int64_t clock,
                       bool) const {
  return HasOwn(ledger, worker, clock);
}

// Several at once: it asks when fewer than half are left of those that it is to have.
int64_t Arrivals::WorkToAskFor(const WorkerLedger& ledger) const {
  if (ledger.has_asked || ledger.no_more || ledger.leaving) return 0;
  const int64_t given = static_cast<int64_t>(ledger.given.size());
  return 2 * given < ledger.ahead ? ledger.ahead - given : 0;
}

// Others may wait for its clock: where it computes no more, its last pull says so, and is answered
// when all that it has sent is in the blocks.
WorkerTask Arrivals::NextOf(const WorkerLedger& ledger) const {
  WorkerTask task;
  const bool is_done = ledger.no_more && ledger.given.empty();
  task.clock = ledger.clock;
  task.retires = is_done || ledger.leaving;
  if (ledger.leaving && ledger.applied >= ledger.clock) {
    task.kind = WorkerTask::Kind::kLeave;
  } else if (ledger.have != ledger.clock || ledger.retired != task.retires) {
    task.kind = WorkerTask::Kind::kPull;
  } else if (is_done) {
    task.kind = WorkerTask::Kind::kIdle;
  } else if (!ledger.given.empty()) {
    task.kind = WorkerTask::Kind::kCompute;
    task.unit = ledger.given.front().contribution();
    task.leaves = {0, ledger.view.leaves()};
    task.nodes = {task.leaves};
    task.may_test = ledger.given.front().evaluate();
  }
  return task;
}

void Arrivals::Keep(const WorkerTask& task, WorkerLedger* ledger) const {
  ledger->clock = task.clock + 1;
}

bool BoundedArrivals::MayRead(const BlockLedger& ledger, const ShardTerms&, uint32_t worker,
                              int64_t clock, bool retires) const {
  if (!HasOwn(ledger, worker, clock)) return false;
  return IsObserver(ledger, worker) || retires || ledger.slowest >= clock - mode().staleness();
}

// One that has just nothing left to do, and has not said so yet, may be far behind already.
int64_t BoundedArrivals::StartClock(int64_t slowest, int64_t fastest) const {
  return std::max(slowest, fastest - mode().staleness());
}

std::unique_ptr<const Policy> BuiltInPolicy(const proto::View& view) {
  switch (view.mode().mode()) {
    case proto::Mode::NAME_SYNC:
      break;
    case proto::Mode::NAME_ASYNC:
      return std::make_unique<Arrivals>(view);
    case proto::Mode::NAME_BOUNDED:
      return std::make_unique<BoundedArrivals>(view);
  }
  return std::make_unique<Steps>(view);
}

}  // namespace rubato
