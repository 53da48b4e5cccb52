#include "worker/step/worker_values.h"

#include <algorithm>
#include <utility>

#include "common/base/status.h"
#include "common/space/job_codec.h"
#include "common/space/placement.h"
#include "common/wire/stream_memory.h"
#include "worker/step/objective.h"

namespace rubato {

absl::StatusOr<std::unique_ptr<WorkerValues>> WorkerValues::Create(const proto::Job& job,
                                                                   const Data* data, int local_rank,
                                                                   OnTested on_tested) {
  RUBATO_ASSIGN_OR_RETURN(ComputeDevice device, ComputeDevice::Choose(job.device(), local_rank));
  const Dataset& train = data->train;
  const int64_t parts = job.train().micro_batches();
  const int64_t micro_batch = job.train().batch_size() / parts;
  RUBATO_ASSIGN_OR_RETURN(const Objective objective, ObjectiveOf(job, *data));
  // A GPU is kept busy by one micro-batch at a time.
  const int64_t threads = device.is_cpu() ? std::min<int64_t>(job.device().threads(), parts) : 1;
  std::vector<std::unique_ptr<Model>> models(std::max<int64_t>(threads, 1));
  for (std::unique_ptr<Model>& model : models) {
    RUBATO_ASSIGN_OR_RETURN(std::unique_ptr<Device> opened, device.Open());
    RUBATO_ASSIGN_OR_RETURN(model, Model::Create(job.model(), train.shape().dimensions(), objective,
                                                 micro_batch, device.dtype(), Purpose::kTraining,
                                                 std::move(opened), WaitingSums(parts)));
  }
  std::unique_ptr<WorkerValues> values(
      new WorkerValues(job, data, std::move(device), std::move(models)));
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

WorkerValues::WorkerValues(const proto::Job& job, const Data* data, ComputeDevice device,
                           std::vector<std::unique_ptr<Model>> models)
    : job_(job),
      train_(data->train),
      device_(std::move(device)),
      models_(std::move(models)),
      space_(SpaceOf(job, models_[0]->layout())) {}

Range WorkerValues::first() const {
  for (const Graph::Node& node : models_[0]->graph().nodes) {
    if (node.parameters > 0) return {node.begin, node.begin + node.parameters};
  }
  return {0, space_.values()};
}

absl::Status WorkerValues::OnJoin() {
  contributions_.reset();
  encoder_.reset();
  // A server may still read what it was lent before: that is not written again.
  micro_batches_.reset();
  arena_ = nullptr;
  if (!IsLent(SharesMemory(job_), PushCodec(job_), job_.wire().chunk())) return absl::OkStatus();
  RUBATO_ASSIGN_OR_RETURN(arena_, SharedArena::Create());
  return absl::OkStatus();
}

void WorkerValues::OnWorkers(int workers, int64_t max_values) {
  // `prefetch` global batches, of which a worker's share is one of `workers` in either mode.
  const int64_t share = (job_.train().micro_batches() + workers - 1) / std::max(1, workers);
  auto reader = std::make_unique<BatchReader>(&train_, job_.seed(), models_[0]->max_batch(),
                                              job_.data().prefetch() * share);
  if (micro_batches_.has_value()) {
    micro_batches_->Use(reader.get());
  } else {
    std::vector<Model*> models;
    for (const std::unique_ptr<Model>& model : models_) models.push_back(model.get());
    micro_batches_.emplace(std::move(models), &space_, reader.get(), job_.seed(),
                           LendsGradients(max_values) ? arena_ : nullptr);
    encoder_.emplace(job_, space_, models_[0]->trainable_count());
    contributions_.emplace(job_, &models_[0]->layout(), &space_, &*micro_batches_, &*encoder_);
  }
  reader_ = std::move(reader);
}

void WorkerValues::ReadAhead(const SampleSchedule& schedule, int64_t unit, Range leaves) {
  for (int64_t leaf = leaves.begin; leaf < leaves.end; ++leaf) {
    const SampleRange range = schedule.MicroBatch(unit, leaf);
    if (!range.positions.empty()) reader_->Announce(range);
  }
}

}  // namespace rubato
