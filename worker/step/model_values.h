// The floats of a worker whose model is Rubato's own: models and their device, and batches of its
// data.
#ifndef RUBATO_WORKER_STEP_MODEL_VALUES_H_
#define RUBATO_WORKER_STEP_MODEL_VALUES_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/cluster.pb.h"
#include "proto/job.pb.h"
#include "worker/data/batch_reader.h"
#include "worker/data/load.h"
#include "worker/model/model.h"
#include "worker/step/compute_device.h"
#include "worker/step/evaluator.h"
#include "worker/step/exchanged_sums.h"
#include "worker/step/micro_batches.h"
#include "worker/step/worker_values.h"

namespace rubato {

class ModelValues : public WorkerValues {
 public:
  // Called on the thread that tests, with a result.
  using OnTested = std::function<void(const proto::EvaluationResult& result)>;

  // `data` must outlive it; `share` without its size, which the job says. Errors as
  // ComputeDevice::Choose and Model::Create.
  static absl::StatusOr<std::unique_ptr<ModelValues>> Create(const proto::Job& job,
                                                             const Data* data, GpuShare share,
                                                             OnTested on_tested);

  proto::WorkerRegistration Registration() const override;
  std::vector<std::string> notes() const override;
  std::vector<std::string> warnings() const override;
  Range first() const override;
  PinMemory pin() override;
  bool copies_parameters() const override { return !device_.is_cpu(); }
  void OnView(const proto::View& view, int64_t max_values) override;
  void ReadAhead(const SampleSchedule& schedule, int64_t unit, Range leaves) override;
  void StartTest(int64_t unit, absl::Span<const float> parameters, bool is_final) override {
    evaluator_->Start(unit, parameters, is_final);
  }
  // Until nothing is being tested.
  void AwaitTests() { evaluator_->Wait(); }
  void EndTests() override {
    evaluator_->Cancel();
    evaluator_->Wait();
  }

 protected:
  void DropSums() override { micro_batches_.reset(); }

 private:
  ModelValues(const proto::Job& job, const Data* data, ComputeDevice device,
              std::vector<std::unique_ptr<Model>> models);
  // Among the models' GPUs, if there are several and they can.
  void OpenExchange();

  const Data& data_;
  const ComputeDevice device_;
  const std::vector<std::unique_ptr<Model>> models_;  // one for each thread, or GPU
  std::unique_ptr<ExchangedSums> exchange_;           // of the models' GPUs, or null
  std::string why_no_exchange_;                       // where one was to be
  std::unique_ptr<BatchReader> reader_;
  std::optional<MicroBatches> micro_batches_;
  std::unique_ptr<Evaluator> evaluator_;
};

}  // namespace rubato

#endif  // RUBATO_WORKER_STEP_MODEL_VALUES_H_
