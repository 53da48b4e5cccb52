#include "worker/evaluator.h"

#include <algorithm>
#include <utility>

#include "common/status.h"

namespace rubato {
int64_t EvaluationBatch(int64_t split_size) {
  // Large enough for efficient products, small enough for the caches.
  constexpr int64_t kBatch = 250;
  return std::min(kBatch, split_size);
}

absl::StatusOr<std::unique_ptr<Evaluator>> Evaluator::Create(const proto::Model& config,
                                                             const Objective& objective,
                                                             const Dataset* split, Done done) {
  const ExampleShape& shape = split->shape();
  RUBATO_ASSIGN_OR_RETURN(
      std::unique_ptr<Model> model,
      Model::Create(config, shape.dimensions(), objective, EvaluationBatch(split->size()),
                    DType::kFloat32, Purpose::kEvaluation));
  return std::unique_ptr<Evaluator>(new Evaluator(std::move(model), split, std::move(done)));
}

Evaluator::Evaluator(std::unique_ptr<Model> model, const Dataset* split, Done done)
    : model_(std::move(model)),
      split_(split),
      done_(std::move(done)),
      reader_(split, /*seed=*/0, model_->max_batch()),
      thread_([this] { Run(); }) {}

Evaluator::~Evaluator() {
  {
    absl::MutexLock lock(&mutex_);
    closing_ = true;
  }
  thread_.join();
}

void Evaluator::Start(int64_t unit, absl::Span<const float> parameters) {
  const auto idle = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !busy_; };
  absl::MutexLock lock(&mutex_, absl::Condition(&idle));
  unit_ = unit;
  parameters_.assign(parameters.begin(), parameters.end());
  busy_ = true;
}

void Evaluator::Run() {
  while (true) {
    {
      const auto wanted = [this]()
                              ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return busy_ || closing_; };
      absl::MutexLock lock(&mutex_, absl::Condition(&wanted));
      if (closing_) return;
    }
    BatchResult total;
    const int64_t batch = model_->max_batch();
    for (int64_t begin = 0; begin < split_->size(); begin += batch) {
      reader_.ReadInOrder({begin, std::min(begin + batch, split_->size())});
      const BatchResult result =
          model_->Evaluate(parameters_, reader_.features(), reader_.targets());
      total.loss_sum += result.loss_sum;
      total.correct += result.correct;
      total.samples += result.samples;
    }
    done_(unit_, total);
    absl::MutexLock lock(&mutex_);
    busy_ = false;
  }
}

}  // namespace rubato
