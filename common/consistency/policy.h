// What a mode means: questions that a shard, the coordinator and a worker ask of one object. A
// policy is made for a view and remembers nothing: what a mode remembers is in the ledgers of
// blocks, so that a change of mode moves no state.
//
// Contributions either belong to steps, whose leaves the view divides over the members (Steps), or
// each is an update of its own, on arrival (Arrivals). A new mode derives from one of the two,
// keeps its settings in an extension of proto::Mode, and reaches the cores through the factory that
// makes their policies.
//
// A policy may be undecided on a step or on a contribution on arrival (NextChange::kAsk): then its
// shard asks the coordinator, which makes one decision for all shards (Decide), keeps it until all
// blocks are done with the unit, and repeats it to whoever asks again. In addition, the job may
// want a verdict on each step (clipping, values that are not finite); the verdict is a separate
// decision.
#ifndef RUBATO_COMMON_CONSISTENCY_POLICY_H_
#define RUBATO_COMMON_CONSISTENCY_POLICY_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

#include "absl/status/statusor.h"
#include "common/consistency/ledger.h"
#include "common/consistency/worker_ledger.h"
#include "common/space/reduction_tree.h"
#include "proto/cluster.pb.h"
#include "proto/mode.pb.h"
#include "proto/view.pb.h"

namespace rubato {

// What a question is about, and the decision that answers it.
struct Subject {
  int64_t unit = 0;
  bool is_verdict = false;  // the job's; else the mode's

  friend bool operator<(const Subject& a, const Subject& b) {
    return std::tie(a.unit, a.is_verdict) < std::tie(b.unit, b.is_verdict);
  }
};
inline Subject SubjectOf(const proto::Question& question) {
  return {question.unit(), question.has_measured()};
}
inline Subject SubjectOf(const proto::Decision& decision) {
  return {decision.unit(), decision.has_verdict()};
}

// What holds for all blocks of a shard.
struct ShardTerms {
  static constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();
  bool closed = false;          // the view is about to be followed by another
  int64_t limit = kNoLimit;     // steps: no block goes beyond this version
  int64_t readable = kNoLimit;  // steps: nobody reads beyond this version
  // Decisions on units that some block is not done with, and on the one before.
  std::map<Subject, proto::Decision> decisions;
  std::set<int64_t> asked;  // units on which the view has asked for the mode's decision

  // The mode's decision on `unit`, or null.
  const proto::Decision* DecisionOn(int64_t unit) const { return Find({unit, false}); }
  // The job's verdict on step `step`, or null.
  const proto::Decision::Verdict* VerdictOn(int64_t step) const {
    const proto::Decision* const decision = Find({step, true});
    return decision == nullptr ? nullptr : &decision->verdict();
  }

 private:
  const proto::Decision* Find(const Subject& subject) const {
    const auto found = decisions.find(subject);
    return found == decisions.end() ? nullptr : &found->second;
  }
};

// What may be done with a block now.
struct NextChange {
  enum class Kind {
    kNone,     // nothing, until something else arrives
    kDrop,     // `first` belongs to no update
    kSum,      // `first` += `second`, which then stands for both
    kMeasure,  // measure BlockLedger::next_payload(): the verdict on it depends on its norm
    kAsk,      // ask for the mode's decision on unit `first`, if this view has not asked
    kApply,    // update the block with BlockLedger::next_payload(), by `factor`
    kSkip,     // leave that out: an update that changes nothing
  };
  Kind kind = Kind::kNone;
  // The first leaves of pending nodes, or a unit.
  int64_t first = 0, second = 0;
  double factor = 1;
};

class Policy {
 public:
  explicit Policy(const proto::View& view) : mode_(view.mode()) {}
  virtual ~Policy() = default;

  const proto::Mode& mode() const { return mode_; }
  // Whether each contribution is an update of its own, applied when it arrives: one worker computes
  // all of it, and it counts for its share of a batch. Otherwise a contribution is a part of a
  // step.
  virtual bool on_arrival() const = 0;
  // The share of the job's learning rate that an update of `samples` samples has.
  virtual double RateOf(int64_t /*samples*/) const { return 1; }
  // Whether blocks advance together, none more than one update ahead of another. Then snapshots and
  // tests use one version of all blocks, and the previous version may still be pulled. Otherwise
  // each block has applied whatever has arrived for it.
  virtual bool blocks_in_step() const = 0;

  // A shard asks about contributions.

  // Whether a contribution of the view's lineage may count. `is_member`: whether its sender is a
  // member.
  virtual bool MayCount(const Contribution& contribution, bool is_member) const = 0;
  // True if the contribution is new; false if it was counted before or is not wanted.
  // InvalidArgument if no honest worker could have sent it.
  virtual absl::StatusOr<bool> Admit(const BlockLedger& ledger, const Contribution& contribution,
                                     const ShardTerms& terms) const = 0;
  // Enters a new contribution. Returns whether its payload is needed.
  virtual bool Enter(const Contribution& contribution, PayloadId payload,
                     BlockLedger* ledger) const = 0;
  // What is to be done next.
  virtual NextChange Next(const ShardTerms& terms, BlockLedger* ledger) const = 0;
  // If Next is kAsk: what the coordinator is told in addition to the unit, about the first block
  // that asks.
  virtual void Ask(const BlockLedger& /*ledger*/, proto::Question* /*question*/) const {}
  // The first unit that the block is not done with: it needs no decisions on earlier units.
  virtual int64_t FirstOpen(const BlockLedger& ledger) const = 0;
  // Removes from the ledger what was applied or left out.
  virtual void Strike(BlockLedger* ledger) const = 0;
  // On arrival: contributions that the block already holds only advance their workers' clocks.
  // Returns whether there were any.
  virtual bool Settle(BlockLedger* /*ledger*/) const { return false; }

  // A shard asks about readers, snapshots and closing.

  // Whether `worker` (an observer, if it has no clock) may read the block for its clock. `retires`:
  // it is its last pull, after which it computes nothing.
  virtual bool MayRead(const BlockLedger& ledger, const ShardTerms& terms, uint32_t worker,
                       int64_t clock, bool retires) const = 0;
  // Whether it reads the previous version instead of the current one.
  virtual bool ReadsPrevious(const BlockLedger& /*ledger*/, int64_t /*clock*/) const {
    return false;
  }
  // Whether a view is closed only when no update is in progress, since the contents of blocks would
  // change.
  virtual bool ClosesAtRest() const = 0;

  // A worker asks.

  // What the worker does next while it is not computing.
  virtual WorkerTask NextOf(const WorkerLedger& ledger) const = 0;
  // Keeps in the ledger that it has computed `task`.
  virtual void Keep(const WorkerTask& task, WorkerLedger* ledger) const = 0;
  // How many units the worker should ask the coordinator for now; where it asks for none, views
  // bring the work.
  virtual int64_t WorkToAskFor(const WorkerLedger& /*ledger*/) const { return 0; }
  // Which leaves of a unit it will compute, where that follows from the view.
  virtual std::vector<Range> Expected(const WorkerLedger& /*ledger*/, int64_t /*unit*/) const {
    return {};
  }

  // The coordinator asks.

  // The mode's decision on a unit, by what the shards have asked so far; nullopt: not yet.
  virtual std::optional<proto::Decision> Decide(
      const std::map<int, proto::Question>& /*by_shard*/) const {
    return std::nullopt;
  }
  // On arrival, whether others may have to wait for a worker at `clock`, where the slowest is at
  // `slowest`.
  virtual bool IsWaitedFor(int64_t /*clock*/, int64_t /*slowest*/) const { return true; }
  // On arrival: the clock at which a joining worker begins: that of the slowest active worker,
  // `slowest`.
  virtual int64_t StartClock(int64_t slowest, int64_t /*fastest*/) const { return slowest; }

 private:
  const proto::Mode mode_;
};

// Sync: a step is applied when it has all its leaves, and read when all steps before are applied.
class Steps : public Policy {
 public:
  explicit Steps(const proto::View& view);

  const ReductionTree& tree() const { return tree_; }
  bool on_arrival() const override { return false; }
  bool blocks_in_step() const override { return true; }
  bool MayCount(const Contribution& contribution, bool is_member) const override;
  absl::StatusOr<bool> Admit(const BlockLedger& ledger, const Contribution& contribution,
                             const ShardTerms& terms) const override;
  bool Enter(const Contribution& contribution, PayloadId payload,
             BlockLedger* ledger) const override;
  NextChange Next(const ShardTerms& terms, BlockLedger* ledger) const override;
  int64_t FirstOpen(const BlockLedger& ledger) const override { return ledger.version; }
  void Strike(BlockLedger* ledger) const override;
  bool MayRead(const BlockLedger& ledger, const ShardTerms& terms, uint32_t worker, int64_t clock,
               bool retires) const override;
  bool ReadsPrevious(const BlockLedger& ledger, int64_t clock) const override;
  bool ClosesAtRest() const override { return false; }
  WorkerTask NextOf(const WorkerLedger& ledger) const override;
  void Keep(const WorkerTask& task, WorkerLedger* ledger) const override;
  std::vector<Range> Expected(const WorkerLedger& ledger, int64_t step) const override;

 protected:
  // What to do next with a step whose sum is complete: ask for the job's verdict first, if it wants
  // one.
  NextChange NextOfWhole(const ShardTerms& terms, const BlockLedger& ledger) const;

 private:
  // The first step in which the worker has something to compute; if there is none, the step after
  // the last.
  int64_t NextStep(const WorkerLedger& ledger) const;

  const uint32_t view_;
  const int64_t from_step_;
  const bool verdict_steps_;
  const ReductionTree tree_;
};

// Async: an update for each contribution; a worker's reads include all of its own contributions.
class Arrivals : public Policy {
 public:
  explicit Arrivals(const proto::View& view)
      : Policy(view), whole_rate_samples_(view.whole_rate_samples()) {}

  bool on_arrival() const override { return true; }
  double RateOf(int64_t samples) const override {
    return whole_rate_samples_ == 0
               ? 1
               : static_cast<double>(samples) / static_cast<double>(whole_rate_samples_);
  }
  bool blocks_in_step() const override { return false; }
  bool MayCount(const Contribution&, bool is_member) const override { return is_member; }
  absl::StatusOr<bool> Admit(const BlockLedger& ledger, const Contribution& contribution,
                             const ShardTerms& terms) const override;
  bool Enter(const Contribution& contribution, PayloadId payload,
             BlockLedger* ledger) const override;
  NextChange Next(const ShardTerms& terms, BlockLedger* ledger) const override;
  int64_t FirstOpen(const BlockLedger& ledger) const override { return ledger.units.below(); }
  void Strike(BlockLedger* ledger) const override;
  bool Settle(BlockLedger* ledger) const override;
  bool MayRead(const BlockLedger& ledger, const ShardTerms& terms, uint32_t worker, int64_t clock,
               bool retires) const override;
  bool ClosesAtRest() const override { return true; }
  WorkerTask NextOf(const WorkerLedger& ledger) const override;
  void Keep(const WorkerTask& task, WorkerLedger* ledger) const override;
  int64_t WorkToAskFor(const WorkerLedger& ledger) const override;

 private:
  const int64_t whole_rate_samples_;
};

// Bounded: likewise, and a worker's reads also include all but the last few contributions of every
// worker that is waited for.
class BoundedArrivals : public Arrivals {
 public:
  explicit BoundedArrivals(const proto::View& view) : Arrivals(view) {}

  bool MayRead(const BlockLedger& ledger, const ShardTerms& terms, uint32_t worker, int64_t clock,
               bool retires) const override;
  bool IsWaitedFor(int64_t clock, int64_t slowest) const override { return clock == slowest; }
  int64_t StartClock(int64_t slowest, int64_t fastest) const override;
};

// Makes the policy of a view.
using PolicyFactory = std::function<std::unique_ptr<const Policy>(const proto::View& view)>;
std::unique_ptr<const Policy> BuiltInPolicy(const proto::View& view);

}  // namespace rubato

#endif  // RUBATO_COMMON_CONSISTENCY_POLICY_H_
