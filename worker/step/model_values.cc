#include "worker/step/model_values.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/wire/stream_memory.h"
#include "worker/step/objective.h"

namespace rubato {

absl::StatusOr<std::unique_ptr<WorkerValues>> ModelValues::Create(const proto::Job& job,
                                                                  const Data* data, int local_rank,
                                                                  OnTested on_tested) {
  RUBATO_ASSIGN_OR_RETURN(
      ComputeDevice device,
      ComputeDevice::Choose(job.device(), local_rank, job.cluster().gpus_per_worker()));
  const Dataset& train = data->train;
  const int64_t parts = job.train().micro_batches();
  const int64_t micro_batch = job.train().batch_size() / parts;
  RUBATO_ASSIGN_OR_RETURN(const Objective objective, ObjectiveOf(job, *data));
  // A GPU is kept busy by one micro-batch at a time.
  const int64_t lanes =
      std::min<int64_t>(device.is_cpu() ? job.device().threads() : device.gpus(), parts);
  std::vector<std::unique_ptr<Model>> models(std::max<int64_t>(lanes, 1));
  for (size_t i = 0; i < models.size(); ++i) {
    RUBATO_ASSIGN_OR_RETURN(std::unique_ptr<Device> opened, device.Open(static_cast<int>(i)));
    RUBATO_ASSIGN_OR_RETURN(
        models[i], Model::Create(job.model(), train.shape().dimensions(), objective, micro_batch,
                                 device.dtype(), Purpose::kTraining, std::move(opened),
                                 WaitingSums(parts, std::max<int64_t>(lanes, 1))));
  }
  std::unique_ptr<ModelValues> values(
      new ModelValues(job, data, std::move(device), std::move(models)));
  const bool on_test = job.evaluation().split() == proto::Evaluation::SPLIT_TEST;
  const auto done = [on_tested = std::move(on_tested),
                     judged = IsClassification(job.loss().name())](int64_t unit, bool is_final,
                                                                   const BatchResult& result) {
    proto::EvaluationResult evaluation;
    evaluation.set_unit(unit);
    evaluation.set_is_final(is_final);
    evaluation.set_loss_sum(result.loss_sum);
    if (judged) {
      evaluation.set_correct(result.correct);
      evaluation.set_judged(result.judged);
    }
    evaluation.set_samples(result.samples);
    on_tested(evaluation);
  };
  RUBATO_ASSIGN_OR_RETURN(
      values->evaluator_,
      Evaluator::Create(job.model(), objective, values->device_, micro_batch,
                        on_test ? &data->test : &data->validation, &data->test, done));
  return values;
}

ModelValues::ModelValues(const proto::Job& job, const Data* data, ComputeDevice device,
                         std::vector<std::unique_ptr<Model>> models)
    : WorkerValues(job, models[0]->layout()),
      data_(*data),
      device_(std::move(device)),
      models_(std::move(models)) {}

proto::WorkerRegistration ModelValues::Registration() const {
  proto::WorkerRegistration registration;
  *registration.mutable_layout() = layout();
  registration.set_data_digest(data_.digest);
  registration.set_train_samples(data_.train.size());
  registration.set_test_samples(data_.test.size());
  registration.set_numerics(device_.numerics());
  return registration;
}

std::vector<std::string> ModelValues::notes() const {
  std::vector<std::string> notes = data_.notes;
  if (!device_.note().empty()) notes.push_back(device_.note());
  const int lanes = static_cast<int>(models_.size());
  if (lanes < device_.gpus()) {
    notes.push_back(absl::StrCat("leaves ", device_.gpus() - lanes, " of its ", device_.gpus(),
                                 " GPUs idle: train.micro_batches is ", lanes));
  }
  return notes;
}

Range ModelValues::first() const {
  for (const Graph::Node& node : models_[0]->graph().nodes) {
    if (node.parameters > 0) return {node.begin, node.begin + node.parameters};
  }
  return WorkerValues::first();
}

void ModelValues::OnView(const proto::View& view, int64_t max_values) {
  // `prefetch` global batches, of which a worker's share is one of as many as there are workers, in
  // either mode.
  const int64_t workers = std::max(1, view.members_size());
  const int64_t share = (job().train().micro_batches() + workers - 1) / workers;
  auto reader = std::make_unique<BatchReader>(&data_.train, job().seed(), models_[0]->max_batch(),
                                              job().data().prefetch() * share);
  if (micro_batches_.has_value()) {
    micro_batches_->Use(reader.get());
  } else {
    std::vector<Model*> models;
    for (const std::unique_ptr<Model>& model : models_) models.push_back(model.get());
    micro_batches_.emplace(std::move(models), &space(), reader.get(), job().seed(),
                           LendsGradients(max_values) ? arena() : nullptr,
                           /*is_split=*/job().cluster().servers() > 1);
    UseSums(&*micro_batches_);
  }
  reader_ = std::move(reader);
}

void ModelValues::ReadAhead(const SampleSchedule& schedule, int64_t unit, Range leaves) {
  for (const int64_t leaf : micro_batches_->ReadingOrder(schedule.leaves(), leaves)) {
    const SampleRange range = schedule.MicroBatch(unit, leaf);
    if (!range.positions.empty()) reader_->Announce(range);
  }
}

}  // namespace rubato
