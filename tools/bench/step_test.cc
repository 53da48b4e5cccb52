#include "tools/bench/step.h"

#include <cstdlib>

#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tools/bench/operations.h"

namespace rubato {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(BenchStep, MeasuresAModelByNameOrByLayers) {
  StepBench bench;
  bench.model = "lenet";
  bench.batch = 3;
  bench.seconds = 0;
  bench.layers = true;
  const absl::StatusOr<std::string> text = BenchStep(bench, /*json=*/true);
  RUBATO_ASSERT_OK(text);
  const nlohmann::json object = nlohmann::json::parse(*text);
  EXPECT_EQ(object["model"], "lenet");
  EXPECT_EQ(object["parameters"], 61706);
  EXPECT_GT(object["milliseconds"], 0);
  EXPECT_GT(object["flops_share_of_peak"], 0);
  EXPECT_NEAR(object["flops_share_of_peak"].get<double>() * object["peak_gflops"].get<double>(),
              object["gflops"].get<double>(), 1e-6 * object["gflops"].get<double>());
  EXPECT_THAT(object["step"].get<std::string>(), HasSubstr("SGD"));
  EXPECT_NEAR(object["samples_per_second"].get<double>() * object["milliseconds"].get<double>(),
              3000, 1e-6);
  EXPECT_EQ(object["layers"].size(), 11u);  // all but flatten
  bench.model = "{layers: [flatten, linear: {out_features: 10}]}";
  bench.layers = false;
  EXPECT_THAT(*BenchStep(bench, false), HasSubstr("7850 parameters, batch 3, 1 thread\n"));
}

TEST(BenchStep, MoreThanCanBeReachedIsNotReliable) {
  EXPECT_EQ(ShareOfPeak(1, 2), "50 %");
  EXPECT_EQ(ShareOfPeak(2, 2), "100 %");
  EXPECT_THAT(ShareOfPeak(4, 2), testing::StartsWith("200 %: not reliable"));
}

// The first layer, linear here, has no gradient by its input: 4 operations a weight, then 6.
TEST(BenchStep, CountsTheOperationsOfAStep) {
  StepBench bench;
  bench.model = "{preset: mlp, hidden: [20]}";
  bench.shape = {5};
  bench.classes = 7;
  bench.batch = 2;
  bench.seconds = 0;
  const absl::StatusOr<std::string> text = BenchStep(bench, true);
  RUBATO_ASSERT_OK(text);
  const nlohmann::json object = nlohmann::json::parse(*text);
  const double operations = 2 * (4 * 5 * 20 + 6 * 20 * 7);
  EXPECT_NEAR(object["gflops"].get<double>() * object["milliseconds"].get<double>() * 1e6,
              operations, 1e-6 * operations);
}

TEST(BenchStep, TakesModelsWithRunningStatistics) {
  StepBench bench;
  bench.model = "resnet20";
  bench.batch = 2;
  bench.seconds = 0;
  RUBATO_EXPECT_OK(BenchStep(bench, false));
}

TEST(BenchStep, MeasuresOnAnEmulatedGpu) {
  setenv("RUBATO_TEST_GPU", "emulated", 1);
  StepBench bench;
  bench.batch = 3;
  bench.seconds = 0;
  bench.device = "cuda";
  bench.precision = "bf16";
  const absl::StatusOr<std::string> text = BenchStep(bench, /*json=*/true);
  unsetenv("RUBATO_TEST_GPU");
  RUBATO_ASSERT_OK(text);
  const nlohmann::json object = nlohmann::json::parse(*text);
  EXPECT_THAT(object["device"].get<std::string>(), HasSubstr("cuda, bf16, emulated by "));
  EXPECT_GT(object["milliseconds"], 0);
  EXPECT_GT(object["gflops"], 0);
  EXPECT_TRUE(object["flops_share_of_peak"].is_null()) << "what a GPU could reach is not known";
  EXPECT_THAT(object["step"].get<std::string>(), Not(HasSubstr("SGD")));
  bench.attention = "flash";
  EXPECT_THAT(BenchStep(bench, false),
              IsError(absl::StatusCode::kInvalidArgument,
                      HasSubstr("attention: found flash, expected auto or products")));
  bench.attention = "auto";
  bench.convolution = "winograd";
  EXPECT_THAT(BenchStep(bench, false),
              IsError(absl::StatusCode::kInvalidArgument,
                      HasSubstr("convolution: found winograd, expected auto or products")));
  bench.precision = "half";
  EXPECT_THAT(BenchStep(bench, false),
              IsError(absl::StatusCode::kInvalidArgument, HasSubstr("found half, expected")));
}

TEST(BenchStep, SaysWhatIsWrongWithTheModel) {
  StepBench bench;
  bench.model = "cn";
  EXPECT_THAT(BenchStep(bench, false),
              IsError(absl::StatusCode::kInvalidArgument, HasSubstr("found cn, expected")));
}

}  // namespace
}  // namespace rubato
