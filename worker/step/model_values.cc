#include "worker/step/model_values.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/wire/stream_memory.h"
#include "worker/step/model_pins.h"
#include "worker/step/objective.h"

namespace rubato {

namespace {

// One for each lane: for each thread of the CPU, or for each GPU, which is kept busy by one
// micro-batch at a time.
absl::StatusOr<std::vector<std::unique_ptr<Model>>> MakeModels(const proto::Job& job,
                                                               const Data& data,
                                                               const Objective& objective,
                                                               ComputeDevice* device) {
  const int64_t parts = job.train().micro_batches();
  const auto lanes = [&] {
    const int64_t most = device->is_cpu() ? job.device().threads() : device->gpus();
    return std::max<int64_t>(std::min(most, parts), 1);
  };
  const auto make = [&](int lane) -> absl::StatusOr<std::unique_ptr<Model>> {
    RUBATO_ASSIGN_OR_RETURN(std::unique_ptr<Device> opened, device->Open(lane));
    return Model::Create(
        job.model(), data.train.shape().dimensions(), objective, job.train().batch_size() / parts,
        device->dtype(), Purpose::kTraining, std::move(opened),
        Keeping{WaitingSums(parts, lanes()), device->exchanges() ? Slices::Spare(lanes()) : 0});
  };
  std::vector<std::unique_ptr<Model>> models;
  while (static_cast<int64_t>(models.size()) < lanes()) {
    const int lane = static_cast<int>(models.size());
    absl::StatusOr<std::unique_ptr<Model>> model = make(lane);
    if (model.ok()) {
      models.push_back(*std::move(model));
    } else if (!device->LeaveOut(lane, model.status())) {
      return model.status();
    }
  }
  return models;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ModelValues>> ModelValues::Create(const proto::Job& job,
                                                                 const Data* data, GpuShare share,
                                                                 OnTested on_tested) {
  share.each = job.cluster().gpus_per_worker();
  RUBATO_ASSIGN_OR_RETURN(ComputeDevice device, ComputeDevice::Choose(job.device(), share));
  RUBATO_ASSIGN_OR_RETURN(const Objective objective, ObjectiveOf(job, *data));
  RUBATO_ASSIGN_OR_RETURN(std::vector<std::unique_ptr<Model>> models,
                          MakeModels(job, *data, objective, &device));
  std::unique_ptr<ModelValues> values(
      new ModelValues(job, data, std::move(device), std::move(models)));
  const bool on_test = job.evaluation().split() == proto::Evaluation::SPLIT_TEST;
  const auto done = [on_tested = std::move(on_tested),
                     judged = IsClassification(job.loss().name())](int64_t unit, bool is_final,
                                                                   const BatchResult& result) {
    proto::EvaluationResult evaluation;
    evaluation.set_unit(unit);
    evaluation.set_is_final(is_final);
    if (result.told > 0) evaluation.set_loss_sum(result.loss_sum);
    if (judged) {
      evaluation.set_correct(result.correct);
      evaluation.set_judged(result.judged);
    }
    evaluation.set_samples(result.samples);
    on_tested(evaluation);
  };
  RUBATO_ASSIGN_OR_RETURN(
      values->evaluator_,
      Evaluator::Create(job.model(), objective, values->device_,
                        job.train().batch_size() / job.train().micro_batches(),
                        on_test ? &data->test : &data->validation, &data->test, done));
  values->OpenExchange();  // of the memory that is left, for it can be done without
  return values;
}

ModelValues::ModelValues(const proto::Job& job, const Data* data, ComputeDevice device,
                         std::vector<std::unique_ptr<Model>> models)
    : WorkerValues(job, models[0]->layout()),
      data_(*data),
      device_(std::move(device)),
      models_(std::move(models)) {}

void ModelValues::OpenExchange() {
  const int gpus = static_cast<int>(models_.size());
  if (!device_.exchanges() || gpus < 2) return;
  const auto open = [&]() -> absl::StatusOr<std::unique_ptr<ExchangedSums>> {
    RUBATO_ASSIGN_OR_RETURN(std::unique_ptr<Exchange> exchange, device_.OpenExchange(gpus));
    std::vector<Model*> models;
    for (const std::unique_ptr<Model>& model : models_) models.push_back(model.get());
    return ExchangedSums::Create(
        std::move(exchange), std::move(models),
        WaitingPlaces(job().train().micro_batches(), gpus, models_[0]->keeps()));
  };
  absl::StatusOr<std::unique_ptr<ExchangedSums>> exchange = open();
  if (exchange.ok()) {
    exchange_ = *std::move(exchange);
  } else {
    why_no_exchange_ = std::string(exchange.status().message());
  }
}

std::vector<std::string> ModelValues::warnings() const {
  std::vector<std::string> warnings = device_.warnings();
  if (!why_no_exchange_.empty()) {
    warnings.push_back(
        absl::StrCat("its GPUs exchange nothing, and the host adds: ", why_no_exchange_));
  }
  return warnings;
}

proto::WorkerRegistration ModelValues::Registration() const {
  proto::WorkerRegistration registration;
  *registration.mutable_layout() = layout();
  registration.set_data_digest(data_.digest);
  registration.set_train_samples(data_.train.size());
  registration.set_test_samples(data_.test.size());
  registration.set_numerics(device_.numerics(models_[0]->fused_by()));
  if (data_.description.shape_size() > 0) *registration.mutable_data() = data_.description;
  return registration;
}

std::vector<std::string> ModelValues::notes() const {
  std::vector<std::string> notes = data_.notes;
  if (!device_.note().empty()) notes.push_back(device_.note());
  const std::string fused = models_[0]->fused();
  if (!fused.empty()) {
    notes.push_back(absl::StrCat(fused, " in one piece, by ", models_[0]->fused_by()));
  }
  if (exchange_ != nullptr) {
    notes.push_back(absl::StrCat("its GPUs add their sums up among themselves, by ",
                                 exchange_->exchange().description()));
  }
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

PinMemory ModelValues::pin() {
  std::vector<Model*> models;
  for (const std::unique_ptr<Model>& model : models_) models.push_back(model.get());
  return PinIn(std::move(models));
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
                           /*is_split=*/job().cluster().servers() > 1, exchange_.get());
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
