// The floats of a worker: its models and their device, batches of its data, gradients on their way
// to the shards, and tests of parameters. What is to be done with them, the session decides
// (worker/session/worker_session.h).
#ifndef RUBATO_WORKER_STEP_WORKER_VALUES_H_
#define RUBATO_WORKER_STEP_WORKER_VALUES_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/space/flat_space.h"
#include "common/space/sample_schedule.h"
#include "common/wire/shared_arena.h"
#include "proto/cluster.pb.h"
#include "proto/job.pb.h"
#include "worker/data/batch_reader.h"
#include "worker/data/load.h"
#include "worker/model/model.h"
#include "worker/step/compute_device.h"
#include "worker/step/contributions.h"
#include "worker/step/evaluator.h"
#include "worker/step/micro_batches.h"
#include "worker/step/push_encoder.h"

namespace rubato {

class WorkerValues {
 public:
  // Called on the thread that tests, with a result.
  using OnTested = std::function<void(const proto::EvaluationResult& result)>;

  // `data` must outlive it. Errors as ComputeDevice::Choose and Model::Create.
  static absl::StatusOr<std::unique_ptr<WorkerValues>> Create(const proto::Job& job,
                                                              const Data* data, int local_rank,
                                                              OnTested on_tested);

  const proto::Layout& layout() const { return models_[0]->layout(); }
  const FlatSpace& space() const { return space_; }
  const ComputeDevice& device() const { return device_; }
  // The first layer's parameters, with which a computation can begin.
  Range first() const;

  // Forgets what it has not sent: the worker joins as one who has not been here before. An error
  // says why gradients will not be lent, though they might be.
  absl::Status OnJoin();
  // Gradients lie there; may be null.
  const std::shared_ptr<SharedArena>& arena() const { return arena_; }
  // From now on so many workers share the work, with shards of up to `max_values` values.
  void OnWorkers(int workers, int64_t max_values);

  // These micro-batches will be computed after those that were announced before.
  void ReadAhead(const SampleSchedule& schedule, int64_t unit, Range leaves);
  // From OnWorkers on.
  Contributions& contributions() { return *contributions_; }
  Evaluator& tests() { return *evaluator_; }

 private:
  WorkerValues(const proto::Job& job, const Data* data, ComputeDevice device,
               std::vector<std::unique_ptr<Model>> models);

  const proto::Job job_;
  const Dataset& train_;
  const ComputeDevice device_;
  const std::vector<std::unique_ptr<Model>> models_;  // one for each thread
  const FlatSpace space_;

  std::shared_ptr<SharedArena> arena_;
  std::unique_ptr<BatchReader> reader_;
  std::optional<MicroBatches> micro_batches_;
  std::optional<PushEncoder> encoder_;
  std::optional<Contributions> contributions_;
  std::unique_ptr<Evaluator> evaluator_;
};

}  // namespace rubato

#endif  // RUBATO_WORKER_STEP_WORKER_VALUES_H_
