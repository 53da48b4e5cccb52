#include "worker/model/loss.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/strip.h"
#include "common/base/status_matchers.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "tests/golden.h"

namespace rubato {
namespace {

template <typename T>
void ExpectPyTorchsValues(const Golden& golden, const std::string& name) {
  SCOPED_TRACE(name);
  const std::vector<int64_t> shape = golden.Shape(name + ".x");
  const std::vector<T> logits = golden.Values<T>(name + ".x");
  std::vector<T> gradient(logits.size(), 77);
  const BatchResult result = CrossEntropy(
      Objective{shape[1]}, ConstTensorRef(logits).Reshaped(Shape(shape.begin(), shape.end())),
      golden.Values<int32_t>(name + ".labels"), gradient);

  // Logits are differences to the greatest, so each sample's loss and probabilities carry the
  // rounding of such a difference, which is at most twice the largest logit.
  double largest = 0;
  for (T logit : logits) largest = std::max(largest, std::abs(double{logit}));
  const double rounding = std::numeric_limits<T>::epsilon() * (2 * largest + 8);
  EXPECT_NEAR(result.loss_sum, golden.Values<double>(name + ".loss")[0], shape[0] * rounding);
  EXPECT_EQ(result.correct, golden.Values<int64_t>(name + ".correct")[0]);
  EXPECT_EQ(result.samples, shape[0]);
  const std::vector<double> expected = golden.Values<double>(name + ".dx");
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(gradient[i], expected[i], rounding) << "gradient[" << i << "]";
  }
}

TEST(CrossEntropy, AgreesWithPyTorch) {
  const Golden golden("layers.safetensors");
  int cases = 0;
  for (const auto& [name, settings] : golden.metadata()) {
    if (settings != "loss") continue;
    ++cases;
    ExpectPyTorchsValues<float>(golden, name);
    ExpectPyTorchsValues<double>(golden, name);
  }
  EXPECT_EQ(cases, 8);
}

template <typename T>
void ExpectPyTorchsRegression(const Golden& golden, const std::string& name,
                              const proto::Loss& loss_of_job) {
  const std::vector<int64_t> shape = golden.Shape(name + ".x");
  const std::vector<T> outputs = golden.Values<T>(name + ".x");
  std::vector<T> gradient(outputs.size(), 77);
  const absl::StatusOr<Objective> objective = ObjectiveFor(loss_of_job, 0, shape[1]);
  RUBATO_ASSERT_OK(objective);
  const BatchResult result =
      ComputeLoss(*objective, ConstTensorRef(outputs).Reshaped(Shape(shape.begin(), shape.end())),
                  {{}, golden.Values<float>(name + ".values")}, gradient);
  // A difference, of at most about 8 here, its square and the sum round a few times each.
  const double rounding = 10 * std::numeric_limits<T>::epsilon();
  const double loss = golden.Values<double>(name + ".loss")[0];
  EXPECT_NEAR(result.loss_sum, loss, rounding * loss);
  EXPECT_EQ(result.correct, 0);
  EXPECT_EQ(result.samples, shape[0]);
  const std::vector<double> expected = golden.Values<double>(name + ".dx");
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(gradient[i], expected[i], rounding) << "gradient[" << i << "]";
  }
}

// Calls check(golden, name, loss) for each case whose metadata are `kind` and a Loss message.
template <typename Check>
void ForEachLoss(const std::string& file, absl::string_view kind, int cases, Check check) {
  const Golden golden(file);
  int found = 0;
  for (const auto& [name, text] : golden.metadata()) {
    absl::string_view settings = text;
    if (!absl::ConsumePrefix(&settings, kind)) continue;
    SCOPED_TRACE(name);
    ++found;
    proto::Loss loss;
    ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(std::string(settings), &loss));
    check(golden, name, loss);
  }
  EXPECT_EQ(found, cases);
}

TEST(MeanError, IsPyTorchsMeanTimesTheSamples) {
  ForEachLoss("layers.safetensors", "regression ", 13,
              [](const Golden& golden, const std::string& name, const proto::Loss& loss) {
                ExpectPyTorchsRegression<float>(golden, name, loss);
                ExpectPyTorchsRegression<double>(golden, name, loss);
              });
}

template <typename T>
void ExpectPyTorchsOptions(const Golden& golden, const std::string& name, const proto::Loss& loss) {
  const std::vector<int64_t> shape = golden.Shape(name + "/x");
  const std::vector<T> logits = golden.Values<T>(name + "/x");
  const int64_t places = shape.size() == 3 ? shape[1] : 1;
  const absl::StatusOr<Objective> objective = ObjectiveFor(loss, shape.back(), 0, places);
  RUBATO_ASSERT_OK(objective);
  std::vector<T> gradient(logits.size(), 77);
  const std::vector<int32_t> labels = golden.Values<int32_t>(name + "/labels");
  const BatchResult result =
      CrossEntropy(*objective, ConstTensorRef(logits).Reshaped(Shape(shape.begin(), shape.end())),
                   labels, gradient);
  EXPECT_EQ(result.samples, shape[0]);
  // Logits are about 3, at most 12.
  const double rounding = 60 * std::numeric_limits<T>::epsilon();
  const double expected_loss = golden.Values<double>(name + "/loss")[0];
  EXPECT_NEAR(result.loss_sum, expected_loss, rounding * expected_loss);
  const double mean = golden.Values<double>(name + "/mean")[0];
  const double weights = WeightOfLabels(*objective, labels);
  EXPECT_NEAR(result.loss_sum * static_cast<double>(places) / weights, mean, rounding * mean);
  EXPECT_NEAR(result.correct / result.judged, golden.Values<double>(name + "/accuracy")[0], 1e-15);
  const std::vector<double> expected = golden.Values<double>(name + "/dx");
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(gradient[i], expected[i], rounding) << "gradient[" << i << "]";
  }
  // With the weight that is due, the division by the samples gives the mean.
  const double weight = TargetWeight(static_cast<int64_t>(labels.size()), weights);
  const BatchResult weighted =
      CrossEntropy(*objective, ConstTensorRef(logits).Reshaped(Shape(shape.begin(), shape.end())),
                   labels, gradient, weight);
  EXPECT_NEAR(weighted.loss_sum / weighted.samples, mean, rounding * mean);
  EXPECT_EQ(weighted.correct, result.correct);
  EXPECT_EQ(weighted.judged, result.judged);
  EXPECT_EQ(weighted.told, weighted.samples);
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(gradient[i], weight * expected[i], 4 * rounding) << "gradient[" << i << "]";
  }
}

template <typename Check>
void ForEachOfPyTorchsOptions(Check check) {
  ForEachLoss("compositions.safetensors", "loss ", 9, check);
}

TEST(CrossEntropy, SmoothsWeighsAndIgnoresLabelsAndTakesPlacesAsPyTorch) {
  ForEachOfPyTorchsOptions(
      [](const Golden& golden, const std::string& name, const proto::Loss& loss) {
        ExpectPyTorchsOptions<float>(golden, name, loss);
        ExpectPyTorchsOptions<double>(golden, name, loss);
      });
}

TEST(CrossEntropy, WithSmoothedAndIgnoredLabelsHasTheGradientOfCentralDifferences) {
  ForEachOfPyTorchsOptions(
      [](const Golden& golden, const std::string& name, const proto::Loss& loss) {
        const std::vector<int64_t> shape = golden.Shape(name + "/x");
        const std::vector<int32_t> labels = golden.Values<int32_t>(name + "/labels");
        std::vector<double> logits = golden.Values<double>(name + "/x");
        const absl::StatusOr<Objective> objective =
            ObjectiveFor(loss, shape.back(), 0, shape.size() == 3 ? shape[1] : 1);
        RUBATO_ASSERT_OK(objective);
        std::vector<double> gradient(logits.size()), ignored(logits.size());
        const auto loss_of = [&](std::vector<double>& by_logits) {
          return CrossEntropy(*objective,
                              ConstTensorRef(logits).Reshaped(Shape(shape.begin(), shape.end())),
                              labels, by_logits)
              .loss_sum;
        };
        const double at = loss_of(gradient);
        for (size_t i = 0; i < logits.size(); ++i) {
          const auto difference = [&](double h) {
            const double kept = logits[i];
            logits[i] = kept + h;
            const double up = loss_of(ignored);
            logits[i] = kept - h;
            const double down = loss_of(ignored);
            logits[i] = kept;
            return (up - down) / (2 * h);
          };
          // Richardson's: errors of the fourth order in h, and roundings of the loss over h.
          const double h = 1e-3;
          EXPECT_NEAR(gradient[i], (4 * difference(h) - difference(2 * h)) / 3,
                      1e-11 + 20 * std::numeric_limits<double>::epsilon() * at / h)
              << "logit " << i;
        }
      });
}

TEST(Objective, ALossTakesLabelsOrNumbers) {
  proto::Loss cross_entropy, mse;
  mse.set_name(proto::Loss::NAME_MSE);
  const auto classes = ObjectiveFor(cross_entropy, 10, 0);
  RUBATO_ASSERT_OK(classes);
  EXPECT_EQ(classes->outputs, 10);
  const auto numbers = ObjectiveFor(mse, 0, 2);
  RUBATO_ASSERT_OK(numbers);
  EXPECT_EQ(numbers->outputs, 2);
  EXPECT_THAT(
      ObjectiveFor(mse, 10, 0),
      IsError(absl::StatusCode::kInvalidArgument,
              "loss.name: found mse, but the data's targets are classes; expected cross_entropy"));
  EXPECT_THAT(
      ObjectiveFor(cross_entropy, 0, 2),
      IsError(
          absl::StatusCode::kInvalidArgument,
          "loss.name: found cross_entropy, but the data's targets are numbers; expected mse, l1 "
          "or huber"));
  for (const proto::Loss::Name name : {proto::Loss::NAME_L1, proto::Loss::NAME_HUBER}) {
    proto::Loss loss;
    loss.set_name(name);
    RUBATO_EXPECT_OK(ObjectiveFor(loss, 0, 2));
    EXPECT_EQ(ObjectiveFor(loss, 10, 0).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(Objective, HasAWeightForEachClass) {
  proto::Loss loss;
  for (const double weight : {1.0, 2.0, 0.5}) loss.add_class_weights(weight);
  const auto three = ObjectiveFor(loss, 3, 0);
  RUBATO_ASSERT_OK(three);
  EXPECT_EQ(WeightOfLabels(*three, {0, 1, 1, 2}), 5.5);
  EXPECT_THAT(
      ObjectiveFor(loss, 10, 0),
      IsError(
          absl::StatusCode::kInvalidArgument,
          "loss.class_weights: found 3 numbers, expected one for each of the data's 10 classes, "
          "in ascending order"));
}

// PyTorch's mean would be 0/0, and infinite with label smoothing.
TEST(CrossEntropy, WhereNoLabelOfAStepCountsThereIsNoLossAndNoGradient) {
  Objective objective = {3};
  objective.class_weights = {1, 0, 2};
  objective.label_smoothing = 0.1;
  const std::vector<int32_t> labels = {1, 1};
  const std::vector<float> logits = {1, 2, 3, 3, 1, 2};
  std::vector<float> gradient(logits.size(), 77);
  EXPECT_EQ(WeightOfLabels(objective, labels), 0);
  const BatchResult result =
      CrossEntropy(objective, ConstTensorRef(logits).Reshaped({2, 3}), labels, TensorRef(gradient),
                   TargetWeight(2, WeightOfLabels(objective, labels)));
  EXPECT_EQ(result.loss_sum, 0);
  EXPECT_EQ(result.told, 0);
  EXPECT_EQ(result.judged, 2);
  EXPECT_THAT(gradient, testing::Each(0));
}

}  // namespace
}  // namespace rubato
