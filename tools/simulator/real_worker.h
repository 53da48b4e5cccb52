// Gradients of the real model on the real data, computed as a worker process does.
#ifndef RUBATO_TOOLS_SIMULATOR_REAL_WORKER_H_
#define RUBATO_TOOLS_SIMULATOR_REAL_WORKER_H_

#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "tools/simulator/worker_model.h"
#include "worker/data/batch_reader.h"
#include "worker/data/load.h"
#include "worker/model/model.h"
#include "worker/step/contributions.h"
#include "worker/step/micro_batches.h"
#include "worker/step/push_encoder.h"

namespace rubato {

class RealWorker : public WorkerModel {
 public:
  // `data` and `space` must outlive it. Errors as Model::Create.
  static absl::StatusOr<std::unique_ptr<RealWorker>> Create(const proto::Job& job, const Data* data,
                                                            const FlatSpace* space);

  void OnJoin() override;
  void OnBlock(int64_t block, const Content& content) override;
  absl::Status Compute(const SampleSchedule& schedule, int64_t unit, Range node, bool on_arrival,
                       Push push, proto::Progress* progress) override;
  void Evaluate(proto::EvaluationResult* result) override;

 private:
  RealWorker(const proto::Job& job, const Data* data, const FlatSpace* space,
             std::unique_ptr<Model> model, std::unique_ptr<Model> test_model);

  const proto::Job job_;
  const bool classification_;
  const FlatSpace* const space_;
  const std::unique_ptr<Model> model_;
  const std::unique_ptr<Model> test_model_;
  const Dataset* const test_;
  BatchReader reader_;
  MicroBatches micro_batches_;
  std::optional<PushEncoder> encoder_;
  std::optional<Contributions> contributions_;
  std::vector<float> parameters_;
};

}  // namespace rubato

#endif  // RUBATO_TOOLS_SIMULATOR_REAL_WORKER_H_
