#include "worker/step/evaluator.h"

#include <algorithm>
#include <utility>

#include "common/base/status.h"

namespace rubato {

int64_t EvaluationBatch(int64_t split_size, const ComputeDevice& device, int64_t micro_batch) {
  // Large enough for efficient products, small enough for the caches.
  constexpr int64_t kBatch = 250;
  return std::min({kBatch, split_size, device.is_cpu() ? kBatch : micro_batch});
}

BatchResult EvaluateSplit(Model* model, absl::Span<const float> parameters, const Dataset& split,
                          const std::atomic<bool>* cancelled) {
  BatchResult total;
  const int64_t batch = model->max_batch();
  BatchReader reader(&split, /*seed=*/0, batch);
  const Objective& objective = model->objective();
  double weights = 0;
  for (int64_t begin = 0; begin < split.size(); begin += batch) {
    if (cancelled != nullptr && *cancelled) break;
    reader.ReadInOrder({begin, std::min(begin + batch, split.size())});
    total += model->Evaluate(parameters, reader.features(), reader.targets());
    if (WeighsLabels(objective)) weights += WeightOfLabels(objective, reader.labels());
  }
  if (WeighsLabels(objective)) {
    total.told = weights > 0 ? static_cast<double>(total.samples) : 0;
    // So that the loss, divided by `judged`, is the mean by weights.
    const bool has_weights = !objective.class_weights.empty() && weights > 0;
    if (has_weights) total.loss_sum *= total.judged * objective.places / weights;
  }
  return total;
}

absl::StatusOr<std::unique_ptr<Evaluator>> Evaluator::Create(
    const proto::Model& config, const Objective& objective, const ComputeDevice& device,
    int64_t micro_batch, const Dataset* evaluated, const Dataset* test, Done done) {
  const ExampleShape& shape = test->shape();
  RUBATO_ASSIGN_OR_RETURN(std::unique_ptr<Device> opened, device.Open());
  RUBATO_ASSIGN_OR_RETURN(
      std::unique_ptr<Model> model,
      Model::Create(config, shape.dimensions(), objective,
                    EvaluationBatch(std::max(evaluated->size(), test->size()), device, micro_batch),
                    device.dtype(), Purpose::kEvaluation, std::move(opened)));
  return std::unique_ptr<Evaluator>(
      new Evaluator(std::move(model), evaluated, test, std::move(done)));
}

Evaluator::Evaluator(std::unique_ptr<Model> model, const Dataset* evaluated, const Dataset* test,
                     Done done)
    : model_(std::move(model)),
      evaluated_(evaluated),
      test_(test),
      done_(std::move(done)),
      thread_([this] { Run(); }) {}

Evaluator::~Evaluator() {
  Cancel();
  {
    MonotonicLock lock(&mutex_);
    closing_ = true;
  }
  thread_.join();
}

void Evaluator::Start(int64_t unit, absl::Span<const float> parameters, bool is_final) {
  const auto idle = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !busy_; };
  MonotonicLock lock(&mutex_, absl::Condition(&idle));
  unit_ = unit;
  is_final_ = is_final;
  cancelled_ = false;
  parameters_.assign(parameters.begin(), parameters.end());
  busy_ = true;
}

void Evaluator::Wait() {
  const auto idle = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !busy_; };
  MonotonicLock lock(&mutex_, absl::Condition(&idle));
}

void Evaluator::Run() {
  while (true) {
    {
      const auto wanted = [this]()
                              ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return busy_ || closing_; };
      MonotonicLock lock(&mutex_, absl::Condition(&wanted));
      if (closing_) return;
    }
    model_->OnNewParameters();
    const auto test = [&](const Dataset& split) {
      return EvaluateSplit(model_.get(), parameters_, split, &cancelled_);
    };
    BatchResult result = test(*evaluated_);
    if (!cancelled_) done_(unit_, /*is_final=*/false, result);
    if (is_final_ && test_ != evaluated_) result = test(*test_);
    if (is_final_ && !cancelled_) done_(unit_, /*is_final=*/true, result);
    MonotonicLock lock(&mutex_);
    busy_ = false;
  }
}

}  // namespace rubato
