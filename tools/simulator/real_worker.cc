#include "tools/simulator/real_worker.h"

#include <utility>

#include "common/base/status.h"
#include "common/wire/received_values.h"
#include "worker/step/compute_device.h"
#include "worker/step/evaluator.h"

namespace rubato {

absl::StatusOr<std::unique_ptr<RealWorker>> RealWorker::Create(const proto::Job& job,
                                                               const Data* data,
                                                               const FlatSpace* space) {
  const Dataset& train = data->train;
  const std::vector<int64_t> dimensions = train.shape().dimensions();
  RUBATO_ASSIGN_OR_RETURN(const Objective objective,
                          ObjectiveFor(job.loss(), train.classes(), train.target_values()));
  const int64_t micro_batch = job.train().batch_size() / job.train().micro_batches();
  RUBATO_ASSIGN_OR_RETURN(std::unique_ptr<Model> model,
                          Model::Create(job.model(), dimensions, objective, micro_batch));
  RUBATO_ASSIGN_OR_RETURN(
      std::unique_ptr<Model> test_model,
      Model::Create(job.model(), dimensions, objective,
                    EvaluationBatch(data->test.size(), ComputeDevice(), micro_batch)));
  return std::unique_ptr<RealWorker>(
      new RealWorker(job, data, space, std::move(model), std::move(test_model)));
}

RealWorker::RealWorker(const proto::Job& job, const Data* data, const FlatSpace* space,
                       std::unique_ptr<Model> model, std::unique_ptr<Model> test_model)
    : job_(job),
      classification_(IsClassification(job.loss().name())),
      space_(space),
      model_(std::move(model)),
      test_model_(std::move(test_model)),
      test_(&data->test),
      reader_(&data->train, job.seed(), model_->max_batch()),
      micro_batches_({model_.get()}, space, &reader_, job.seed()),
      parameters_(space->values()) {}

void RealWorker::OnJoin() {
  encoder_.emplace(job_, *space_, model_->trainable_count());
  contributions_.emplace(job_, &model_->layout(), space_, &micro_batches_, &*encoder_);
}

void RealWorker::OnBlock(int64_t block, const Content& content) {
  ReceivedValues(content.floats)
      .CopyTo(absl::MakeSpan(parameters_)
                  .subspan(space_->BlockValues(block).begin, content.floats.size));
}

absl::Status RealWorker::Compute(const SampleSchedule& schedule, int64_t unit, Range node,
                                 bool on_arrival, Push push, proto::Progress* progress) {
  return contributions_->Compute(
      schedule, unit, node, on_arrival, parameters_,
      [&](int64_t block, const Payload& payload) {
        push(block, {0, payload});
      },
      progress);
}

void RealWorker::Evaluate(proto::EvaluationResult* result) {
  const BatchResult total = EvaluateSplit(test_model_.get(), parameters_, *test_);
  result->set_loss_sum(total.loss_sum);
  if (classification_) {
    result->set_correct(total.correct);
    result->set_judged(total.judged);
  }
  result->set_samples(total.samples);
}

}  // namespace rubato
