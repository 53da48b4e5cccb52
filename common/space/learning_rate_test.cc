#include "common/space/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "common/base/status_matchers.h"
#include "common/files/safetensors.h"
#include "common/space/sample_schedule.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

template <typename Message>
Message Parse(const std::string& text) {
  Message message;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &message)) << text;
  return message;
}

constexpr int64_t kSamples = 1000;  // of an epoch

LearningRate Make(const std::string& optimizer, int64_t batch_size = 10,
                  int64_t samples_per_epoch = kSamples, const std::string& until = "epochs: 4") {
  return LearningRate(Parse<proto::Optimizer>(optimizer), batch_size, samples_per_epoch,
                      Parse<proto::Point>(until));
}

// tests/goldens/learning_rates.safetensors, made by tools/scripts/make_optimizer_goldens.py with
// torch.optim.lr_scheduler.
TEST(LearningRateTest, FollowsPyTorchStepByStep) {
  const absl::StatusOr<SafetensorsReader> file =
      SafetensorsReader::Open("tests/goldens/learning_rates.safetensors");
  RUBATO_ASSERT_OK(file);
  int64_t batch_size = 0;
  ASSERT_TRUE(absl::SimpleAtoi(file->metadata().at("batch_size"), &batch_size));
  ASSERT_EQ(file->tensors().size(), 6);
  for (size_t i = 0; i < file->tensors().size(); ++i) {
    const TensorInfo& info = file->tensors()[i];
    std::vector<double> expected(info.Elements());
    RUBATO_ASSERT_OK(
        file->Read(i, 0, absl::MakeSpan(reinterpret_cast<char*>(expected.data()), info.Bytes())));
    const LearningRate rate = Make(file->metadata().at(info.name), batch_size);
    ASSERT_EQ(expected.size(), 40);
    for (size_t step = 0; step < expected.size(); ++step) {
      // PyTorch's cosine is a product of forty ratios: far better than a float all the same.
      const int64_t samples = SampleSchedule(kSamples, batch_size, 1).SamplesBefore(step);
      EXPECT_NEAR(rate.At(samples), expected[step], 1e-7 * expected[step])
          << info.name << " step " << step;
    }
  }
}

// Steps end with the epoch: of 25 samples, ten at a time, the third has five.
TEST(LearningRateTest, TakesAFactorForEachStepFromATable) {
  const LearningRate rate =
      Make("learning_rate: 0.5 schedule { name: NAME_TABLE factors: [1, 0.5, 0.25, 2, 4, 8] }",
           /*batch_size=*/10, /*samples_per_epoch=*/25);
  const std::vector<std::pair<int64_t, float>> expected = {
      {0, 0.5f}, {9, 0.5f},  {10, 0.25f}, {19, 0.25f}, {20, 0.125f}, {24, 0.125f},
      {25, 1},   {35, 2.0f}, {45, 4.0f},  {49, 4.0f},  {50, 4.0f},   {1000, 4.0f}};
  for (const auto& [samples, wanted] : expected) {
    EXPECT_EQ(rate.At(samples), wanted) << samples;
    EXPECT_EQ(rate.At(samples, 1.0), 2 * wanted) << samples;
  }
}

// Three steps are an epoch of 25 samples.
TEST(LearningRateTest, AFactorHoldsForAnEpochOfSteps) {
  const LearningRate rate = Make(
      "learning_rate: 0.5 schedule { name: NAME_TABLE factors: [1, 0.5, 2] steps_per_factor: 3 }",
      /*batch_size=*/10, /*samples_per_epoch=*/25);
  const std::vector<std::pair<int64_t, float>> expected = {
      {0, 0.5f}, {24, 0.5f}, {25, 0.25f}, {49, 0.25f}, {50, 1.0f}, {74, 1.0f}, {1000, 1.0f}};
  for (const auto& [samples, wanted] : expected) EXPECT_EQ(rate.At(samples), wanted) << samples;
}

// PyTorch's schedulers know steps alone, however short the last one of an epoch is.
TEST(LearningRateTest, PointsInStepsAreReachedWithTheStep) {
  constexpr int64_t kBatch = 10, kEpoch = 25;
  const SampleSchedule steps(kEpoch, kBatch, 1);
  const LearningRate warmup =
      Make("learning_rate: 1 schedule { warmup { steps: 8 } }", kBatch, kEpoch);
  const LearningRate step =
      Make("learning_rate: 1 schedule { name: NAME_STEP every { steps: 2 } gamma: 0.5 }", kBatch,
           kEpoch);
  const LearningRate cosine = Make("learning_rate: 1 schedule { name: NAME_COSINE }", kBatch,
                                   kEpoch, /*until=*/"steps: 20");
  for (int64_t t = 0; t < 30; ++t) {
    const int64_t samples = steps.SamplesBefore(t);
    EXPECT_FLOAT_EQ(warmup.At(samples), std::min(1.0, t / 8.0)) << t;
    EXPECT_FLOAT_EQ(step.At(samples), std::pow(0.5, t / 2)) << t;
    const double done = std::min(1.0, t / 20.0);
    EXPECT_NEAR(cosine.At(samples), (1 + std::cos(M_PI * done)) / 2, 1e-7) << t;
  }
}

TEST(LearningRateTest, FallsInStepsExactlyAtThePoint) {
  const LearningRate rate =
      Make("learning_rate: 0.5 schedule { name: NAME_STEP every { epochs: 1.5 } gamma: 0.5 }");
  EXPECT_EQ(rate.At(0), 0.5f);
  EXPECT_EQ(rate.At(1499), 0.5f);
  EXPECT_EQ(rate.At(1500), 0.25f);
  EXPECT_EQ(rate.At(2999), 0.25f);
  EXPECT_EQ(rate.At(3000), 0.125f);
}

TEST(LearningRateTest, CosineEndsWithTheTrainingAndThenStays) {
  const LearningRate rate =
      Make("learning_rate: 0.5 schedule { name: NAME_COSINE final_ratio: 0.25 }");
  EXPECT_EQ(rate.At(0), 0.5f);
  EXPECT_FLOAT_EQ(rate.At(2000), 0.5f * 0.625f);  // halfway between 1 and 0.25
  EXPECT_FLOAT_EQ(rate.At(1000), 0.5f * (0.25f + 0.75f * (1 + std::sqrt(0.5f)) / 2));
  EXPECT_EQ(rate.At(4000), 0.125f);
  EXPECT_EQ(rate.At(9000), 0.125f);
}

TEST(LearningRateTest, WarmsUpFromZeroInProportionToSamples) {
  const LearningRate rate = Make("learning_rate: 0.5 schedule { warmup { samples: 800 } }");
  EXPECT_EQ(rate.At(0), 0);
  EXPECT_EQ(rate.At(200), 0.125f);
  EXPECT_EQ(rate.At(400), 0.25f);
  EXPECT_EQ(rate.At(800), 0.5f);
  EXPECT_EQ(rate.At(int64_t{1} << 60), 0.5f);
}

TEST(LearningRateTest, IsConstantByDefault) {
  const LearningRate rate = Make("learning_rate: 0.3");
  EXPECT_EQ(rate.At(0), 0.3f);
  EXPECT_EQ(rate.At(123456789), 0.3f);
}

TEST(SamplesAtTest, CountsEpochsStepsAndSamples) {
  EXPECT_EQ(SamplesAt(Parse<proto::Point>("epochs: 3"), 64, 60000), 180000);
  EXPECT_EQ(SamplesAt(Parse<proto::Point>("epochs: 0.1"), 64, 60000), 6000);
  EXPECT_EQ(SamplesAt(Parse<proto::Point>("epochs: 1e-9"), 64, 60000), 1);
  EXPECT_EQ(SamplesAt(Parse<proto::Point>("steps: 7"), 64, 60000), 448);
  EXPECT_EQ(SamplesAt(Parse<proto::Point>("samples: 12345"), 64, 60000), 12345);
}

}  // namespace
}  // namespace rubato
