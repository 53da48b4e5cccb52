// The core of a worker: decides what to pull, compute and push next. A single-threaded state
// machine: events in, actions out; no clock, socket, thread or float. The shell is worker/worker.h.
#ifndef RUBATO_WORKER_WORKER_LOOP_H_
#define RUBATO_WORKER_WORKER_LOOP_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "common/flat_space.h"
#include "common/reduction_tree.h"
#include "common/sample_schedule.h"
#include "proto/cluster.pb.h"
#include "proto/view.pb.h"

namespace rubato {

struct WorkerAction {
  enum class Kind {
    kPull,         // ask all shards for all blocks at `clock`; ends with OnParameters
    kRequestWork,  // ask the coordinator for a contribution; ends with OnWork
    kEvaluate,   // test the parameters that are here, which have seen `unit` units, beside the next
                 // computation
    kReadAhead,  // a hint: the micro-batches `leaves` of `unit` will be computed after those that
                 // were announced before
    kCompute,    // gradients of the micro-batches `leaves` of `unit`, each of `nodes` pushed as one
                 // sum under `clock`
    kFinish,     // tell the coordinator that nothing is left to do
  };
  Kind kind;
  int64_t clock = 0;
  int64_t unit = 0;  // step (sync) or contribution (on arrival)
  Range leaves{};
  std::vector<Range> nodes{};  // in order; they make up `leaves`
  bool observer = false;       // kPull: as one who computes nothing
  bool is_final = false;       // kEvaluate: on the test split too
};
using WorkerActions = std::vector<WorkerAction>;

class WorkerLoop {
 public:
  // `batch_size` samples in `micro_batches` make a step; `prefetch` steps are announced ahead.
  WorkerLoop(int64_t batch_size, int64_t micro_batches, int64_t prefetch = 0)
      : micro_batch_(batch_size / micro_batches), prefetch_(prefetch) {}

  // view.your_rank() is this worker's.
  void OnView(const proto::View& view, WorkerActions* actions);
  // All blocks have arrived for the last kPull.
  void OnParameters(WorkerActions* actions);
  void OnWork(const proto::Work& work, WorkerActions* actions);
  // The last kCompute is done: its sums are on their way.
  void OnComputed(WorkerActions* actions);
  // The last kCompute came to nothing: its gradient is not finite and has been left out (on arrival
  // only).
  void OnLeftOut(WorkerActions* actions);
  // No step from `step` on will be applied (sync).
  void OnEndAt(const proto::EndAt& end_at, WorkerActions* actions);
  // The coordinator wants the final parameters tested.
  void OnEvaluationRequest(const proto::EvaluationRequest& request, WorkerActions* actions);

  const proto::View& view() const { return view_; }
  // Where the samples of a unit lie; from the first view on.
  const SampleSchedule& schedule() const { return *schedule_; }

 private:
  bool sync() const { return view_.mode() == proto::View::MODE_SYNC; }
  const proto::Member& me() const { return view_.members(view_.your_rank()); }
  void Pull(int64_t clock, WorkerActions* actions);
  void NextStep(WorkerActions* actions);
  void MaybeCompute(WorkerActions* actions);
  void ReadAhead(int64_t unit, Range leaves, WorkerActions* actions);
  void Finish(WorkerActions* actions);

  const int64_t micro_batch_;  // samples
  const int64_t prefetch_;     // units
  proto::View view_;
  std::optional<SampleSchedule> schedule_;

  int64_t clock_ = 0;  // sync: the step at hand; on arrival: contributions computed
  enum class Waiting {
    kParameters,
    kFinal
  } waiting_ = Waiting::kParameters;  // for what the pull is
  bool parameters_here_ = false;      // on arrival: those for clock_
  std::optional<proto::Work> work_;   // on arrival: the next, asked for while computing
  int64_t final_unit_ = 0;
  bool finished_ = false;
};

}  // namespace rubato

#endif  // RUBATO_WORKER_WORKER_LOOP_H_
