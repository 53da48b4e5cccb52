// Gradients of runs of micro-batches, added along the fixed tree; blocks leave as soon as they are
// whole.
#ifndef RUBATO_WORKER_STEP_MICRO_BATCHES_H_
#define RUBATO_WORKER_STEP_MICRO_BATCHES_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "common/space/flat_space.h"
#include "common/space/reduction_tree.h"
#include "common/space/sample_schedule.h"
#include "common/wire/shared_arena.h"
#include "worker/data/batch_reader.h"
#include "worker/model/loss.h"
#include "worker/model/model.h"
#include "worker/step/exchanged_sums.h"
#include "worker/step/gradient_buffers.h"
#include "worker/step/gradient_sums.h"
#include "worker/step/lane_plan.h"

namespace rubato {

// What becomes of the gradients of the leaves of `node`, computed one after the other: each is
// added to the sums of finished left siblings, and only that of the node leaves.
std::vector<Summing> SummingsOf(int64_t leaves, Range node);

// With several models it computes as many micro-batches side by side, each on a thread of its own:
// since a micro-batch is one thread's work and sums follow the tree, their number changes no bit.
// Models on devices that keep gradients (Model::keeps) add up there what the tree lets them; what
// is left to be added is added here or, with an exchange, by the devices.
class MicroBatches : public GradientSums {
 public:
  // All must outlive it. The models, at least one, are alike. What layers draw is a function of
  // (seed, unit, micro-batch). Gradients lie in `arena`, if there is one, so that they can be lent.
  // Of several servers (`is_split`) the first blocks of one may be here before another has taken
  // the last gradient: the buffer that the next one needs then is made in the first step.
  // exchange: of these models, or null.
  MicroBatches(std::vector<Model*> models, const FlatSpace* space, BatchReader* reader,
               uint64_t seed, std::shared_ptr<SharedArena> arena = nullptr, bool is_split = false,
               ExchangedSums* exchange = nullptr);
  ~MicroBatches() override;

  // From now on batches come from `reader`.
  void Use(BatchReader* reader) { reader_ = reader; }

  absl::StatusOr<std::vector<BatchResult>> Compute(const SampleSchedule& schedule, int64_t unit,
                                                   Range node, absl::Span<const float> parameters,
                                                   Push push,
                                                   AwaitParameters await = AllHaveArrived) override;

  // If one device has added it all up, and looked.
  bool is_known_finite() const override { return is_known_finite_; }

  // In which order Compute will read the batches of a worker with these leaves.
  std::vector<int64_t> ReadingOrder(int64_t leaves, Range own) const;

  // How many gradients Compute holds at a time for `node` of the tree over `leaves`, with so many
  // models of which each keeps so many, if what it pushed before has left.
  static int64_t MaxBuffers(int64_t leaves, Range node, int64_t lanes, int keeps = 0);
  // How many this has made so far.
  int64_t buffers() const { return buffers_.size(); }

 private:
  using Gradient = GradientBuffers::Gradient;
  // Sums of finished left siblings, outermost first.
  struct Waiting {
    std::vector<Range> nodes;
    std::vector<Gradient> gradients;  // none with an exchange
  };
  // An addition to a gradient, value by value.
  struct Addition {
    Gradient from;
    float* to;
  };

  // What computes one micro-batch at a time.
  struct Lane {
    Model* model;
    Batch batch;
    std::optional<BatchResult> result;  // none: it was told not to wait for parameters
    std::function<void()> work;         // empty: nothing to do
    int64_t ready = 0;                  // values from here on are final
    std::thread thread;                 // none of the first, which is the caller's
  };

  // What is computed.
  struct Work {
    const SampleSchedule& schedule;
    int64_t unit;
    double weight;  // see WeightOf
    absl::Span<const float> parameters;
    AwaitParameters await;
  };

  // A micro-batch of it.
  struct Task {
    int64_t leaf;
    bool is_empty;  // of a short unit
    Summing summing;
    absl::Span<float> gradient;  // written if it leaves
  };

  // What the lanes do side by side.
  struct Round {
    LaneRound plan;
    std::vector<std::vector<Summing>> summings;  // of each item's leaves
    std::vector<Gradient> gradients;             // of each item; none with an exchange
    std::vector<Addition> additions;  // of left siblings that they complete, innermost first
    Gradient sum;                     // the node's, which leaves in the last round; else null
    int64_t next_block = 0;           // behind it all are folded
  };

  // Which left siblings each item completes is known before it is computed. Moves what the round
  // adds out of `waiting` and what it makes in.
  Round PlanRound(const ReductionTree& tree, Range node, LaneRound plan, Waiting* waiting);
  // A turn of a round; in the last one the items' sums are folded and, in the last round, leave.
  // Results go to `results`, by leaf from `first` on.
  void ComputeTurn(const Work& work, int64_t turn, Round* round, Push push, int64_t first,
                   std::vector<BatchResult>* results) ABSL_LOCKS_EXCLUDED(mutex_);
  // Values from `done` on are final in all lanes: blocks of them are folded and, in the last round,
  // leave.
  void Fold(int64_t done, Round* round, Push push) ABSL_LOCKS_EXCLUDED(mutex_);
  void FoldBlocks(int64_t done, Round* round, Push push);
  // Of the lanes 0 to `count` - 1, when the first one is done: what is left to be folded.
  void FoldRest(size_t count, Round* round, Push push) ABSL_LOCKS_EXCLUDED(mutex_);
  // By lane i > 0 on its thread.
  void ComputeBeside(const Work& work, const Task& task, Lane* lane) ABSL_LOCKS_EXCLUDED(mutex_);
  // On the lane's thread, of the batch that it has.
  std::optional<BatchResult> ComputeLeaf(const Work& work, const Task& task, Lane* lane,
                                         absl::FunctionRef<void(int64_t begin)> ready) const;
  int64_t lanes() const { return static_cast<int64_t>(lanes_.size()); }
  int keeps() const { return lanes_[0]->model->keeps(); }
  // The factor (TargetWeight) of all labels of `unit`, whoever computes which, so that sums have
  // the same bits.
  double WeightOf(const SampleSchedule& schedule, int64_t unit) const;
  // What a lane goes by that was told whether parameters may be read: all lanes end, or none,
  // though parameters may arrive between one's answer and another's.
  bool Agree(bool readable) ABSL_LOCKS_EXCLUDED(mutex_);
  // Before anything is pushed: from now on none ends. False if one already has.
  bool Commit() ABSL_LOCKS_EXCLUDED(mutex_);
  bool ends() const ABSL_LOCKS_EXCLUDED(mutex_);
  void RunLane(Lane* lane) ABSL_LOCKS_EXCLUDED(mutex_);
  void SetReady(Lane* lane, int64_t begin) ABSL_LOCKS_EXCLUDED(mutex_);
  // The first value from which on all is final in the lanes 1 to `count` - 1; waits until it is
  // below `than`.
  int64_t OthersReadyBelow(int64_t than, size_t count) ABSL_LOCKS_EXCLUDED(mutex_);

  const FlatSpace* const space_;
  BatchReader* reader_;
  const uint64_t seed_;
  GradientBuffers buffers_;
  bool lacks_spare_;
  ExchangedSums* const exchange_;
  // The first is the caller's. `work` and `ready` are guarded by the mutex; the rest is of who has
  // its work.
  std::vector<std::unique_ptr<Lane>> lanes_;

  bool is_known_finite_ = false;  // what is pushed

  mutable absl::Mutex mutex_;
  enum class Outcome { kOpen, kEnds, kCommitted };
  Outcome outcome_ ABSL_GUARDED_BY(mutex_) = Outcome::kOpen;  // of the computation at hand
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace rubato

#endif  // RUBATO_WORKER_STEP_MICRO_BATCHES_H_
