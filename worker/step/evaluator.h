// Tests parameters on whole splits, on a thread of its own, so that training goes on meanwhile.
#ifndef RUBATO_WORKER_STEP_EVALUATOR_H_
#define RUBATO_WORKER_STEP_EVALUATOR_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/monotonic.h"
#include "proto/job.pb.h"
#include "worker/data/batch_reader.h"
#include "worker/data/dataset.h"
#include "worker/model/loss.h"
#include "worker/model/model.h"
#include "worker/step/compute_device.h"

namespace rubato {

// Samples that are tested at a time: on a GPU, whose memory training shares, no more than are
// trained on at a time.
int64_t EvaluationBatch(int64_t split_size, const ComputeDevice& device, int64_t micro_batch);

// Sums over all samples of a split, in its order, model->max_batch() at a time. Over fewer once
// `*cancelled`, if it is given.
BatchResult EvaluateSplit(Model* model, absl::Span<const float> parameters, const Dataset& split,
                          const std::atomic<bool>* cancelled = nullptr);

class Evaluator {
 public:
  // Called on the evaluator's thread with the unit that was passed to Start; `is_final`: of the
  // test split, as Start asked for.
  using Done = std::function<void(int64_t unit, bool is_final, const BatchResult& result)>;

  // `evaluated` is evaluation.split, `test` the test split; they may be one, and must outlive it.
  // `micro_batch` is training's. Errors as Model::Create, and of `device`.
  static absl::StatusOr<std::unique_ptr<Evaluator>> Create(
      const proto::Model& config, const Objective& objective, const ComputeDevice& device,
      int64_t micro_batch, const Dataset* evaluated, const Dataset* test, Done done);
  // Cancels the test at hand.
  ~Evaluator();

  // Copies `parameters` and tests them on the evaluated split, and then, if `is_final`, on the test
  // split. Waits first while an earlier test is still running: begin none before that has told its
  // results.
  void Start(int64_t unit, absl::Span<const float> parameters, bool is_final)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Of the test at hand no result is told that has not been: it ends with the samples that it is
  // at.
  void Cancel() { cancelled_ = true; }

  // Until nothing is being tested.
  void Wait() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  Evaluator(std::unique_ptr<Model> model, const Dataset* evaluated, const Dataset* test, Done done);
  void Run() ABSL_LOCKS_EXCLUDED(mutex_);

  const std::unique_ptr<Model> model_;
  const Dataset* const evaluated_;
  const Dataset* const test_;
  const Done done_;

  std::atomic<bool> cancelled_{false};

  MonotonicMutex mutex_;
  bool busy_ ABSL_GUARDED_BY(mutex_) = false;
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  // While busy, of the evaluator's thread.
  int64_t unit_ = 0;
  bool is_final_ = false;
  std::vector<float> parameters_;
  std::thread thread_;
};

}  // namespace rubato

#endif  // RUBATO_WORKER_STEP_EVALUATOR_H_
