#include "worker/step/evaluator.h"

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/step/test_gpus.h"

namespace rubato {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

// One feature, three classes; of all, or of one alone.
Dataset MakeSplit(int64_t samples, int32_t only = -1) {
  Examples examples;
  examples.shape = {1, 1, 1};
  examples.classes = 3;
  for (int64_t i = 0; i < samples; ++i) {
    if (only >= 0 && i % 3 != only) continue;
    examples.pixels.push_back(static_cast<uint8_t>(i));
    examples.labels.push_back(static_cast<int32_t>(i % 3));
  }
  return Dataset(std::move(examples), Normalization{{0.0f}, {1.0f}});
}

proto::Model MakeModel() {
  proto::Model model;
  model.add_layers()->mutable_flatten();
  model.add_layers()->mutable_linear()->set_out_features(3);
  return model;
}

TEST(EvaluationBatch, IsOnAGpuNoMoreThanTrainingTakes) {
  const ComputeDevice cpu;
  EXPECT_EQ(EvaluationBatch(10000, cpu, 16), 250);
  EXPECT_EQ(EvaluationBatch(100, cpu, 16), 100);
  proto::Device device;
  device.set_type(proto::Device::TYPE_CUDA);
  setenv(kTestGpuVariable, "emulated", 1);
  const absl::StatusOr<ComputeDevice> gpu = ComputeDevice::Choose(device);
  unsetenv(kTestGpuVariable);
  RUBATO_ASSERT_OK(gpu);
  EXPECT_EQ(EvaluationBatch(10000, *gpu, 16), 16);
  EXPECT_EQ(EvaluationBatch(10000, *gpu, 4096), 250);
  EXPECT_EQ(EvaluationBatch(10, *gpu, 16), 10);
}

TEST(EvaluateSplit, EndsBetweenTwoBatchesOnceItIsCancelled) {
  const Dataset split = MakeSplit(1000);
  const auto model = Model::Create(MakeModel(), {1, 1, 1}, {3}, /*max_batch=*/100);
  RUBATO_ASSERT_OK(model);
  const std::vector<float> parameters((*model)->parameter_count());
  std::atomic<bool> cancelled{false};
  EXPECT_EQ(EvaluateSplit(model->get(), parameters, split, &cancelled).samples, 1000);
  cancelled = true;
  EXPECT_EQ(EvaluateSplit(model->get(), parameters, split, &cancelled).samples, 0);
}

// As a mean of each class's own, by weights; accuracy knows no weights.
TEST(EvaluateSplit, ClassesHaveTheirWeights) {
  const std::vector<double> weights = {1, 3.5, 0.25};
  Objective objective = {3};
  const std::vector<float> parameters = {0.02f, -0.01f, 0.015f, 0.3f, 1, -0.2f};
  const auto test = [&](const Dataset& split) {
    const auto model = Model::Create(MakeModel(), {1, 1, 1}, objective, /*max_batch=*/32);
    return EvaluateSplit(model->get(), parameters, split);
  };
  double losses = 0, sum = 0;
  for (int32_t label = 0; label < 3; ++label) {
    const BatchResult result = test(MakeSplit(100, label));
    losses += weights[label] * result.loss_sum;
    sum += weights[label] * static_cast<double>(result.samples);
  }
  const BatchResult plain = test(MakeSplit(100));
  objective.class_weights.assign(weights.begin(), weights.end());
  const BatchResult result = test(MakeSplit(100));
  EXPECT_NEAR(result.loss_sum / result.judged, losses / sum, 1e-6);
  EXPECT_NE(losses / sum, plain.loss_sum / plain.judged);
  EXPECT_EQ(result.judged, 100);
  EXPECT_EQ(result.correct, plain.correct);
  EXPECT_EQ(result.told, 100);
  objective.class_weights = {1, 0, 1};
  EXPECT_EQ(test(MakeSplit(100, 1)).told, 0) << "none of its targets counts";
  EXPECT_EQ(test(MakeSplit(100, 2)).told, 33);
  objective.class_weights.clear();
  objective.ignore_index = 1;
  EXPECT_EQ(test(MakeSplit(100, 1)).told, 0);
}

// The first of the two results of a final test is told while the test is cancelled: there is no
// second one, and the next test is whole.
TEST(EvaluatorTest, TellsNothingMoreOfATestThatIsCancelled) {
  const Dataset validation = MakeSplit(300), test = MakeSplit(600);
  absl::Notification has_told, may_go_on;
  std::vector<std::pair<int64_t, int64_t>> results;  // unit, samples
  const auto done = [&](int64_t unit, bool, const BatchResult& result) {
    results.emplace_back(unit, result.samples);
    if (results.size() > 1) return;
    has_told.Notify();
    may_go_on.WaitForNotification();
  };
  const auto evaluator = Evaluator::Create(MakeModel(), {3}, ComputeDevice(), /*micro_batch=*/10,
                                           &validation, &test, done);
  RUBATO_ASSERT_OK(evaluator);
  const std::vector<float> parameters(6);
  (*evaluator)->Start(7, parameters, /*is_final=*/true);
  has_told.WaitForNotification();
  (*evaluator)->Cancel();
  may_go_on.Notify();
  (*evaluator)->Wait();
  EXPECT_THAT(results, ElementsAre(Pair(7, 300)));
  (*evaluator)->Start(8, parameters, /*is_final=*/true);
  (*evaluator)->Wait();
  EXPECT_THAT(results, ElementsAre(Pair(7, 300), Pair(8, 300), Pair(8, 600)));
}

}  // namespace
}  // namespace rubato
