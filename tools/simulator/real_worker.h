// Gradients of the real model on the real data, computed as a worker process does.
#ifndef RUBATO_TOOLS_SIMULATOR_REAL_WORKER_H_
#define RUBATO_TOOLS_SIMULATOR_REAL_WORKER_H_

#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "tools/simulator/worker_model.h"
#include "worker/data/load.h"
#include "worker/step/model_values.h"

namespace rubato {

// `job` as a worker computes it in one thread and memory, reading nothing ahead.
proto::Job Alone(proto::Job job);

class RealWorker : public WorkerModel {
 public:
  // What the workers of a simulation compute with, one after the other.
  struct Floats {
    std::vector<proto::EvaluationResult> results;  // of the test that runs
    std::unique_ptr<ModelValues> values;
  };

  // `data` must outlive it. The first worker creates `shared`, which serves all workers of one job,
  // except with wire.push: topk, where workers keep residuals. Errors as ModelValues::Create.
  static absl::StatusOr<std::unique_ptr<RealWorker>> Create(const proto::Job& job, const Data* data,
                                                            std::shared_ptr<Floats>* shared);

  // Bytes that the workers of a simulation of `job` take, whose model has `values` values and whose
  // WorkerValues take `shared_bytes`: parameters and a gradient on its way, each its own.
  static int64_t Memory(const proto::Job& job, int64_t values, int64_t shared_bytes);

  void OnJoin() override;
  void OnBlock(int64_t block, const Content& content) override;
  absl::Status Compute(const SampleSchedule& schedule, int64_t unit, Range node,
                       const Policy& policy, Push push, proto::Progress* progress) override;
  std::vector<proto::EvaluationResult> Test(int64_t unit, bool is_final) override;

 private:
  explicit RealWorker(std::shared_ptr<Floats> floats)
      : floats_(std::move(floats)), parameters_(floats_->values->space().values()) {}

  const std::shared_ptr<Floats> floats_;
  std::vector<float> parameters_;
};

}  // namespace rubato

#endif  // RUBATO_TOOLS_SIMULATOR_REAL_WORKER_H_
