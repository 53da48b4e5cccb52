// Evaluations beside the training: of which split, of which parameters, and under which names.
#include <signal.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cluster.h"

namespace rubato {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

class EvaluationTest : public ClusterTest {
 protected:
  // What `rubato eval` finds, in a process of its own.
  nlohmann::json Eval(const std::string& path, const std::string& split) {
    const Process::Result result =
        Start({"tools/rubato", "eval", path, "--split", split, "--json"}).Wait();
    EXPECT_EQ(result.code, 0) << result.err;
    return ParseJson(result.out);
  }
};

constexpr char kData[] =
    "data={format: glyphs, train_size: 1500, test_size: 200, validation: {fraction: 0.2}}";

// A run that ends there has the parameters that the evaluation at a step is of.
TEST_F(EvaluationTest, InSyncIsOfTheValidationSplitAtOneVersion) {
  const Arguments set = {kData, "cluster.workers=2", "cluster.servers=2",
                         "evaluation.every={steps: 10}"};
  Train("run", set);
  std::vector<int64_t> steps;
  for (const nlohmann::json& line : Metrics("run", "eval")) {
    const int64_t step = line["step"];
    steps.push_back(step);
    EXPECT_EQ(line["split"], "validation");
    const std::string until = absl::StrCat("until", step);
    Arguments shorter = set;
    shorter.push_back(absl::StrCat("train.until={steps: ", step, "}"));
    Train(until, shorter);
    const nlohmann::json eval = Eval(until, "validation");
    EXPECT_EQ(eval["samples"], 300);
    EXPECT_EQ(eval["loss"], line["loss"]);
    EXPECT_EQ(eval["accuracy"], line["accuracy"]);
  }
  EXPECT_THAT(steps, ElementsAre(10, 20, 30, 40));
  const std::vector<nlohmann::json> test = Metrics("run", "test");
  ASSERT_EQ(test.size(), 1u);
  EXPECT_EQ(test[0]["step"], 40);
  const nlohmann::json eval = Eval("run", "test");
  EXPECT_EQ(eval["samples"], 200);
  EXPECT_EQ(eval["loss"], test[0]["loss"]);
  EXPECT_EQ(Summary("run")["test_loss"], test[0]["loss"]);
  EXPECT_EQ(Summary("run")["validation_loss"], Metrics("run", "eval").back()["loss"]);
}

// The test split and its examples are drawn from seeds, which the environment could set.
TEST_F(EvaluationTest, EvalGoesByTheRunsOwnJobWhateverTheEnvironmentSays) {
  std::string table = "x,y\n";
  for (int i = 0; i < 100; ++i) absl::StrAppend(&table, i * i % 7, ",", i % 3, "\n");
  Write("table.csv", table);
  Train("run", {"data={format: csv, path: table.csv, target: y, test_fraction: 0.2}",
                "model={layers: [linear: {out_features: 3}]}"});
  std::filesystem::rename(Path("table.csv"), Path("moved.csv"));
  setenv("RUBATO__DATA__SEED", "5", 1);
  setenv("WORLD_SIZE", "9", 1);
  setenv("RUBATO__DATA__PATH", Path("moved.csv").c_str(), 1);
  const nlohmann::json eval = Eval("run", "test");
  for (const char* name : {"RUBATO__DATA__SEED", "WORLD_SIZE", "RUBATO__DATA__PATH"}) {
    unsetenv(name);
  }
  EXPECT_EQ(eval["loss"], Summary("run")["test_loss"]);
}

TEST_F(EvaluationTest, EvalWarnsOfDataThatHaveChanged) {
  const std::string table = "x,y\n1,a\n2,b\n3,a\n4,b\n5,a\n6,b\n";
  Write("table.csv", table);
  Train("run", {"data={format: csv, path: table.csv, target: y, test_fraction: 0.5}",
                "model={layers: [linear: {out_features: 2}]}",
                "train={batch_size: 3, until: {steps: 4}}"});
  const std::string run = "run", checkpoint = "run/checkpoints/step-00000004";
  for (const bool is_other : {false, true}) {
    if (is_other) Write("table.csv", table + "7,a\n");
    for (const std::string& path : {run, checkpoint}) {
      const Process::Result result = Start({"tools/rubato", "eval", path}).Wait();
      EXPECT_EQ(result.code, 0) << result.err;
      EXPECT_EQ(absl::StartsWith(result.err, "warning: the data are others than"), is_other)
          << path << ": " << result.err;
    }
  }
}

// By the greatest loss, so that it is an early one. Not every step that is due gets a checkpoint.
TEST_F(EvaluationTest, TheBestCheckpointIsThatOfTheBestEvaluation) {
  Train("run", {kData, "evaluation.every={steps: 10}",
                "checkpoint={every: {steps: 10}, keep_last: 1, keep_best: {metric: eval/loss, "
                "mode: max}}"});
  const std::string log = ReadText(Path("run/logs/server-0.log"));
  std::string best;
  double greatest = 0;
  for (const nlohmann::json& line : Metrics("run", "eval")) {
    const std::string name = absl::StrFormat("step-%08d", line["step"].get<int64_t>());
    if (absl::StrContains(log, "checkpoint run/checkpoints/" + name) && line["loss"] > greatest) {
      greatest = line["loss"];
      best = name;
    }
  }
  ASSERT_NE(best, "step-00000040");
  std::vector<std::string> kept;
  for (const auto& entry : std::filesystem::directory_iterator(Path("run/checkpoints"))) {
    kept.push_back(entry.path().filename());
  }
  EXPECT_THAT(kept, UnorderedElementsAre(best, "step-00000040"));
}

TEST_F(EvaluationTest, OnArrivalTheFinalParametersAreEvaluatedAndTested) {
  Train("run", {kData, "consistency=async", "cluster.workers=3", "cluster.servers=2",
                "train={batch_size: 60, micro_batches: 3, until: {epochs: 2}}"});
  const std::vector<nlohmann::json> eval = Metrics("run", "eval"), test = Metrics("run", "test");
  ASSERT_EQ(eval.size(), 2u);
  ASSERT_EQ(test.size(), 1u);
  EXPECT_EQ(eval[1]["loss"], Eval("run", "validation")["loss"]);
  EXPECT_EQ(test[0]["loss"], Eval("run", "test")["loss"]);
}

// Step 1 is tested, which takes far longer than all the rest, and step 2 waits for that.
TEST_F(EvaluationTest, AJobThatIsInterruptedDoesNotWaitForATest) {
  std::filesystem::create_directory(Path("run"));
  Process& launcher = StartTrain(
      "run", {"data={format: glyphs, train_size: 1500, test_size: 20000}",
              "model={layers: [{conv2d: {out_channels: 48, kernel_size: 5, padding: 2}}, relu, "
              "{conv2d: {out_channels: 48, kernel_size: 5, padding: 2}}, relu, flatten, "
              "{linear: {out_features: 10}}]}",
              "train={batch_size: 4, micro_batches: 2, until: {steps: 1000}}",
              "evaluation={split: test, every: {steps: 1}}"});
  ASSERT_TRUE(AwaitText(Path("run/metrics.jsonl"), "\"step\":2,", launcher));
  launcher.Signal(SIGINT);
  EXPECT_EQ(launcher.Wait().code, 130);
  EXPECT_THAT(Metrics("run", "eval"), ::testing::IsEmpty()) << "the test was waited for";
}

TEST_F(EvaluationTest, TheSplitMayBeChosenAndMustBeThere) {
  Train("run", {kData, "evaluation.split=test"});
  for (const nlohmann::json& line : Metrics("run", "eval")) EXPECT_EQ(line["split"], "test");
  EXPECT_EQ(Metrics("run", "eval").back()["loss"], Metrics("run", "test").back()["loss"]);
  EXPECT_FALSE(Summary("run").contains("validation_loss"));
  const Process::Result result = StartTrain("none", {"evaluation.split=validation"}).Wait();
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("evaluation.split: found validation without data.validation"));
}

}  // namespace
}  // namespace rubato
