// Gradients of the real model on the real data, computed as a worker process does.
#ifndef RUBATO_TOOLS_SIMULATOR_REAL_WORKER_H_
#define RUBATO_TOOLS_SIMULATOR_REAL_WORKER_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "tools/simulator/worker_model.h"
#include "worker/data/load.h"
#include "worker/step/worker_values.h"

namespace rubato {

class RealWorker : public WorkerModel {
 public:
  // `data` must outlive it. Errors as WorkerValues::Create.
  static absl::StatusOr<std::unique_ptr<RealWorker>> Create(const proto::Job& job,
                                                            const Data* data);

  void OnJoin() override;
  void OnBlock(int64_t block, const Content& content) override;
  absl::Status Compute(const SampleSchedule& schedule, int64_t unit, Range node,
                       const Policy& policy, Push push, proto::Progress* progress) override;
  std::vector<proto::EvaluationResult> Test(int64_t unit, bool is_final) override;

 private:
  RealWorker() = default;

  std::vector<float> parameters_;
  std::vector<proto::EvaluationResult> results_;  // of the test that runs
  std::unique_ptr<WorkerValues> values_;
};

}  // namespace rubato

#endif  // RUBATO_TOOLS_SIMULATOR_REAL_WORKER_H_
