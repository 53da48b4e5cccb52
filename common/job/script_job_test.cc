// Jobs whose model is a script's.
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "common/base/status_matchers.h"
#include "common/job/is_script.h"
#include "common/job/job.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::ElementsAre;

constexpr char kTrain[] = "train: {batch_size: 64, micro_batches: 4, until: {epochs: 3}}\n";

absl::StatusOr<proto::Job> Load(const std::string& keys,
                                const std::vector<std::string>& overrides = {},
                                const Environment& environment = {}) {
  const std::string file = testing::TempDir() + "/job.yaml";
  std::ofstream(file, std::ios::binary) << "version: 1\nname: s\n" << kTrain << keys;
  return LoadJob(file, overrides, environment);
}

std::vector<std::string> MistakesIn(const std::string& keys) {
  const absl::StatusOr<proto::Job> job = Load(keys);
  if (job.ok()) return {};
  const std::string file = testing::TempDir() + "/job.yaml";
  return absl::StrSplit(absl::StrReplaceAll(job.status().message(), {{file, "job.yaml"}}), '\n');
}

TEST(ScriptJobTest, AScriptStandsInPlaceOfModelDataLossAndOptimizer) {
  const absl::StatusOr<proto::Job> job = Load("script: [python3, train.py]\n");
  RUBATO_ASSERT_OK(job);
  EXPECT_TRUE(IsScript(*job));
  EXPECT_THAT(job->script(), ElementsAre("python3", "train.py"));
  EXPECT_FALSE(job->has_data());
  EXPECT_FALSE(job->has_loss());
  EXPECT_FALSE(job->has_optimizer());
}

TEST(ScriptJobTest, AScriptHasLongerToStart) {
  const auto timeout = [](const std::string& keys) {
    const absl::StatusOr<proto::Job> job = Load(keys);
    RUBATO_EXPECT_OK(job);
    return job.ok() ? job->cluster().start_timeout() : 0;
  };
  EXPECT_EQ(timeout("model: mlp\n"), 60);
  EXPECT_EQ(timeout("script: [a]\n"), 600);
  EXPECT_EQ(timeout("model: script\ncluster: {workers: 2}\n"), 600);
  EXPECT_EQ(timeout("script: [a]\ncluster: {start_timeout: 5s}\n"), 5);
}

// A run's job.yaml is read by its processes and by who trains it again.
TEST(ScriptJobTest, TheResolvedJobReadsBackToTheSame) {
  const absl::StatusOr<proto::Job> job = Load("script: [python3, train.py]\n");
  RUBATO_ASSERT_OK(job);
  const std::string file = testing::TempDir() + "/resolved.yaml";
  std::ofstream(file, std::ios::binary) << ResolvedYaml(*job);
  const absl::StatusOr<proto::Job> again = LoadJob(file, {}, Environment());
  RUBATO_ASSERT_OK(again);
  EXPECT_EQ(again->DebugString(), job->DebugString());
  EXPECT_EQ(JobDigest(*again), JobDigest(*job));
}

// Who starts the script is no matter: by a cluster the job names none.
TEST(ScriptJobTest, TheProgramIsNoPartOfTheDigest) {
  const absl::StatusOr<proto::Job> script = Load("script: [python3, train.py]\n");
  const absl::StatusOr<proto::Job> model = Load("model: script\n");
  RUBATO_ASSERT_OK(script);
  RUBATO_ASSERT_OK(model);
  EXPECT_EQ(JobDigest(*script), JobDigest(*model));
}

TEST(ScriptJobTest, WhatTheScriptHasTheJobHasNot) {
  EXPECT_THAT(MistakesIn("script: [a]\noptimizer: sgd\ndata: {format: glyphs}\nloss: mse\n"),
              ElementsAre("job.yaml:5:1: optimizer: found beside a script, expected nothing: the "
                          "script has its own",
                          "job.yaml:6:1: data: found beside a script, expected nothing: the script "
                          "has its own",
                          "job.yaml:7:1: loss: found beside a script, expected nothing: the script "
                          "has its own"));
  EXPECT_THAT(MistakesIn("script: [a]\nmodel: mlp\n"),
              ElementsAre("job.yaml:4:1: script: found beside a model, expected one of the two: a "
                          "script has its own model"));
  EXPECT_THAT(MistakesIn("script: [a]\nwire: {push: topk}\n"),
              ElementsAre("job.yaml:5:8: wire.push: found topk beside a script, expected another "
                          "codec: its optimizer is not known"));
}

// By --set and from the environment one key comes alone.
TEST(ScriptJobTest, WhatTheScriptHasCannotBeSetEither) {
  const absl::StatusOr<proto::Job> job =
      Load("script: [a]\n", {"optimizer.learning_rate=3"}, {{"RUBATO__DATA__FORMAT", "glyphs"}});
  EXPECT_EQ(std::string(job.status().message()),
            "RUBATO__DATA__FORMAT: found beside a script, expected nothing: the "
            "script has its own\n"
            "--set optimizer.learning_rate: found beside a script, expected nothing: the script "
            "has its own");
}

TEST(ScriptJobTest, WhereTheDataOfOtherJobsLieIsNoMistake) {
  const Environment environment = {{"RUBATO__DATA__PATH", "/data"},
                                   {"RUBATO__DATA__TEST_PATH", "/test"}};
  RUBATO_EXPECT_OK(Load("script: [a]\n", {}, environment));
  RUBATO_EXPECT_OK(Load("model: script\n", {}, environment));
  EXPECT_FALSE(Load("script: [a]\n", {"data.path=/data"}).ok());
}

// And not that there is no model: the script was meant to bring it.
TEST(ScriptJobTest, AScriptThatIsNoCommandIsTheOnlyMistake) {
  EXPECT_THAT(MistakesIn("script: []\n"),
              ElementsAre("job.yaml:4:1: script: found an empty list, expected the words of a "
                          "command, such as [python3, train.py]"));
  EXPECT_THAT(
      MistakesIn("script: python3 train.py\n"),
      ElementsAre("job.yaml:4:9: script: found \"python3 train.py\", expected a list of text"));
  EXPECT_THAT(MistakesIn("model: mlp\nscript: []\n"), ElementsAre());
}

TEST(ScriptJobTest, AMetricIsAnyFigureOfItsTests) {
  const auto keep_best = [](const std::string& metric) {
    return absl::StrCat("checkpoint: {keep_best: {mode: max, metric: ", metric, "}}\n");
  };
  for (const std::string& metric : {std::string("eval/loss"), std::string("eval/accuracy"),
                                    std::string("eval/f1"), "eval/" + std::string(64, 'n')}) {
    const absl::StatusOr<proto::Job> job = Load("script: [a]\n" + keep_best(metric));
    RUBATO_ASSERT_OK(job);
    EXPECT_EQ(job->checkpoint().keep_best().metric(), metric);
  }
  for (const std::string& metric :
       {std::string("f1"), std::string("eval/"), std::string("eval/a-b"), std::string("eval/a/b"),
        std::string("test/f1")}) {
    EXPECT_THAT(MistakesIn("script: [a]\n" + keep_best(metric)),
                ElementsAre(absl::StrCat(
                    "job.yaml:5:45: checkpoint.keep_best.metric: found ", metric,
                    ", expected eval/loss, eval/accuracy or, beside a script, eval/ and the name "
                    "of another figure of its tests (1 to 64 letters, digits and '_')")));
  }
  EXPECT_THAT(MistakesIn("script: [a]\n" + keep_best("eval/" + std::string(65, 'n'))),
              testing::SizeIs(1));
  EXPECT_THAT(MistakesIn("model: mlp\n" + keep_best("eval/f1")),
              ElementsAre("job.yaml:5:37: checkpoint.keep_best.metric: found eval/f1, expected "
                          "eval/loss or eval/accuracy: other figures are of scripts' tests"));
}

TEST(ScriptJobTest, LayoutsBringTheOptimizer) {
  const absl::StatusOr<proto::Job> job = Load("model: script\n");
  RUBATO_ASSERT_OK(job);
  proto::Layout layout;
  EXPECT_EQ(WithOptimizerOf(layout, *job).DebugString(), job->DebugString());
  layout.mutable_optimizer()->set_learning_rate(0.5);
  EXPECT_EQ(WithOptimizerOf(layout, *job).optimizer().learning_rate(), 0.5);
}

}  // namespace
}  // namespace rubato
