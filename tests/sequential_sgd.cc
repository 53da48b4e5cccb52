#include "tests/sequential_sgd.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/types/span.h"
#include "common/base/check.h"
#include "common/files/safetensors.h"
#include "common/space/initialize.h"
#include "common/space/permutation.h"

namespace rubato {
namespace {

using Floats = std::vector<float>;

// The sum over leaves [begin, end): a run of n > 1 leaves is split after the largest power of two
// below n.
Floats TreeSum(int64_t begin, int64_t end, const std::function<Floats(int64_t)>& leaf) {
  if (end - begin == 1) return leaf(begin);
  int64_t half = 1;
  while (2 * half < end - begin) half *= 2;
  Floats sum = TreeSum(begin, begin + half, leaf);
  const Floats right = TreeSum(begin + half, end, leaf);
  for (size_t i = 0; i < sum.size(); ++i) sum[i] = sum[i] + right[i];
  return sum;
}

int64_t Size(const proto::Parameter& parameter) {
  int64_t size = 1;
  for (const int64_t dimension : parameter.shape()) size *= dimension;
  return size;
}

}  // namespace

SequentialGradients::SequentialGradients(const proto::Job& job)
    : seed_(job.seed()), data_(LoadData(job)) {
  RUBATO_CHECK(data_.ok());
  const ExampleShape& shape = data_->train.shape();
  const int64_t largest = std::max<int64_t>(job.train().batch_size(), data_->test.size());
  const Objective objective = {data_->train.classes()};  // cross-entropy
  absl::StatusOr<std::unique_ptr<Model>> model =
      Model::Create(job.model(), shape.dimensions(), objective, largest);
  RUBATO_CHECK(model.ok());
  model_ = *std::move(model);
  features_.resize(largest * shape.size());
}

absl::Span<const float> SequentialGradients::Read(const Dataset& split,
                                                  const std::vector<int64_t>& indices) {
  labels_.resize(indices.size());
  split.Read(indices, features_.data(), labels_.data());
  return absl::MakeConstSpan(features_.data(), indices.size() * split.shape().size());
}

Floats SequentialGradients::InitialParameters() const {
  Floats w;
  for (const proto::Parameter& parameter : layout().parameters()) {
    Floats values(Size(parameter));
    InitializeRange(parameter, seed_, 0, absl::MakeSpan(values));
    w.insert(w.end(), values.begin(), values.end());
  }
  return w;
}

Floats SequentialGradients::Sum(const Floats& w, int64_t epoch, int64_t begin, int64_t n,
                                int64_t leaves, double* loss) {
  return TreeSum(0, leaves, [&](int64_t leaf) {
    std::vector<int64_t> indices;
    for (int64_t i = leaf * n / leaves; i < (leaf + 1) * n / leaves; ++i) {
      indices.push_back(SampleAt(seed_, epoch, begin + i, train_size()));
    }
    Floats gradient(w.size());
    if (indices.empty()) return gradient;
    const absl::Span<const float> x = Read(data_->train, indices);
    *loss +=
        model_->Gradient(w, x, {labels_}, /*key=*/0, TensorRef(gradient), [](int64_t) {}).loss_sum;
    return gradient;
  });
}

BatchResult SequentialGradients::Test(const Floats& w) {
  std::vector<int64_t> all(data_->test.size());
  for (size_t i = 0; i < all.size(); ++i) all[i] = i;
  const absl::Span<const float> x = Read(data_->test, all);
  return model_->Evaluate(w, x, {labels_});
}

std::string FlatDigest(const proto::Layout& layout, const Floats& values,
                       const std::string& suffix) {
  std::vector<TensorView> tensors;
  int64_t begin = 0;
  for (const proto::Parameter& parameter : layout.parameters()) {
    TensorView tensor;
    tensor.info.name = parameter.name() + suffix;
    tensor.info.shape.assign(parameter.shape().begin(), parameter.shape().end());
    tensor.bytes = AsBytes(absl::MakeConstSpan(values).subspan(begin, Size(parameter)));
    begin += Size(parameter);
    tensors.push_back(tensor);
  }
  return TensorsDigest(tensors);
}

SequentialResult TrainSequentially(const proto::Job& job, bool rate_by_samples) {
  SequentialGradients gradients(job);
  const int64_t batch = job.train().batch_size(), leaves = job.train().micro_batches();
  Floats w = gradients.InitialParameters(), m(w.size());

  Floats average;  // of each value: 0 for parameters
  for (const proto::Parameter& parameter : gradients.layout().parameters()) {
    average.resize(average.size() + Size(parameter), static_cast<float>(parameter.average()));
  }

  const int64_t size = gradients.train_size();
  const int64_t steps_per_epoch = (size + batch - 1) / batch;
  const proto::Point& until = job.train().until();
  const int64_t steps =
      until.has_steps() ? until.steps() : static_cast<int64_t>(until.epochs()) * steps_per_epoch;
  const float momentum = static_cast<float>(job.optimizer().momentum());
  SequentialResult result;
  for (int64_t step = 0; step < steps; ++step) {
    const int64_t epoch = step / steps_per_epoch;
    const int64_t begin = step % steps_per_epoch * batch;
    const int64_t n = std::min(batch, size - begin);
    double loss = 0;
    const Floats sum = gradients.Sum(w, epoch, begin, n, leaves, &loss);

    float rate = static_cast<float>(job.optimizer().learning_rate());
    if (rate_by_samples) rate = static_cast<float>(rate * (static_cast<double>(n) / batch));
    const float scale = static_cast<float>(1.0 / static_cast<double>(n));
    for (size_t i = 0; i < w.size(); ++i) {
      const float g = scale * sum[i];
      if (average[i] > 0) {
        w[i] = w[i] + average[i] * (g - w[i]);
        continue;
      }
      m[i] = step == 0 ? g : momentum * m[i] + g;
      w[i] = w[i] - rate * m[i];
    }
    result.losses.push_back(loss / n);
    result.samples += n;
  }

  const BatchResult test = gradients.Test(w);
  result.test_accuracy = static_cast<double>(test.correct) / test.samples;
  result.test_loss = test.loss_sum / test.samples;
  result.digest = FlatDigest(gradients.layout(), w);
  return result;
}

}  // namespace rubato
