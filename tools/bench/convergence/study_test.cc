#include "tools/bench/convergence/study.h"

#include <fstream>
#include <tuple>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/simulator/timing_model.h"

namespace rubato {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

MATCHER_P(Yields, value, "") {
  *result_listener << arg.status().ToString();
  return arg.ok() && *arg == value;
}

TEST(ParseTargetTest, AccuracyAndLoss) {
  const absl::StatusOr<Target> accuracy = ParseTarget("eval/accuracy=0.88");
  RUBATO_ASSERT_OK(accuracy);
  EXPECT_TRUE(accuracy->higher_is_better);
  EXPECT_EQ(accuracy->value, 0.88);
  const absl::StatusOr<Target> loss = ParseTarget("eval/loss=0.3");
  RUBATO_ASSERT_OK(loss);
  EXPECT_TRUE(loss->IsReachedBy(0.25));
  for (const char* text :
       {"", "0.88", "accuracy=1", "eval/accuracy", "eval/accuracy=88", "eval/accuracy=0",
        "eval/accuracy=-0.1", "eval/loss=nan", "eval/loss=x"}) {
    EXPECT_THAT(ParseTarget(text), IsError(absl::StatusCode::kInvalidArgument,
                                           HasSubstr("expected eval/accuracy=NUMBER")));
  }
}

TEST(ParseTargetTest, AnotherFigureSaysWhichWayItIsBetter) {
  for (const auto& [text, higher_is_better] : {std::pair("eval/f1,at_least=0.9", true),
                                               {"eval/word_errors,at_most=-2.5", false},
                                               {"eval/loss=0.3", false},
                                               {"eval/accuracy=0.88", true},
                                               {"eval/loss,at_least=0.3", true}}) {
    const absl::StatusOr<Target> target = ParseTarget(text);
    RUBATO_ASSERT_OK(target);
    EXPECT_EQ(target->higher_is_better, higher_is_better) << text;
    EXPECT_EQ(TargetFlag(*target), text);
  }
  EXPECT_THAT(ParseTarget("eval/loss,at_most=0.3").value().metric, "loss");
  EXPECT_EQ(TargetFlag(ParseTarget("eval/loss,at_most=0.3").value()), "eval/loss=0.3");
  for (const char* text : {"eval/f1=0.9", "f1,at_least=0.9", "eval/,at_least=1",
                           "eval/step,at_least=10", "eval/f-1,at_least=1", "eval/f1,at_least=x",
                           "eval/accuracy,at_most=2", "eval/f1,above=1"}) {
    EXPECT_THAT(ParseTarget(text), IsError(absl::StatusCode::kInvalidArgument,
                                           HasSubstr("eval/NAME,at_least=NUMBER")));
  }
}

class CellsOfTest : public ::testing::Test {
 protected:
  CellsOfTest() {
    study_.config = ::testing::TempDir() + "/job.yaml";
    std::ofstream(study_.config)
        << "version: 1\nname: study\ncluster: {workers: 2}\ndata: {format: glyphs}\n"
           "model: {layers: [flatten, {linear: {out_features: 10}}]}\nloss: cross_entropy\n"
           "optimizer: {name: sgd, learning_rate: 0.1}\n"
           "train: {batch_size: 64, micro_batches: 4, until: {epochs: 2}}\n";
    study_.modes = {"sync", "async"};
    study_.baseline = "sync";
    study_.seeds = 3;
    study_.target = {"accuracy", 0.8, true};
    study_.compute_scales = {1};
  }

  Study study_;
};

TEST_F(CellsOfTest, EachSeedInEachMode) {
  study_.workers = {4, 8};
  const absl::StatusOr<std::vector<Cell>> cells = CellsOf(study_);
  RUBATO_ASSERT_OK(cells);
  ASSERT_THAT(*cells, SizeIs(12));
  EXPECT_EQ((*cells)[0].name, "sync-w4-s0");
  EXPECT_EQ((*cells)[11].name, "async-w8-s2");
  EXPECT_THAT((*cells)[11].arguments,
              AllOf(Contains("consistency={mode: async}"), Contains("cluster.workers=8"),
                    Contains("seed=2"), Contains("data.validation=0.1"),
                    Contains("evaluation.every={epochs: 0.050000000000000003}")));
}

TEST_F(CellsOfTest, EachAtEachOfTheSpeeds) {
  study_.workers = {4, 8};
  study_.speeds = {"exponential", "straggler:factor=4"};
  const absl::StatusOr<std::vector<Cell>> cells = CellsOf(study_, {{{4, 1, 0}, "0.5"}});
  RUBATO_ASSERT_OK(cells);
  ASSERT_THAT(*cells, SizeIs(2 * 2 * 2 * 3));
  EXPECT_EQ((*cells)[0].name, "sync-w4-s0");
  EXPECT_THAT((*cells)[0].arguments, Contains("exponential"));
  EXPECT_EQ((*cells)[6].name, "sync-w4-speeds1-lr0.5-s0");
  EXPECT_THAT((*cells)[6].arguments, Contains("straggler:factor=4"));
  EXPECT_EQ((*cells)[23].name, "async-w8-speeds1-s2");
  study_.learning_rates = {"0.1"};
  const absl::StatusOr<std::vector<Cell>> trials = TrialsOf(study_);
  RUBATO_ASSERT_OK(trials);
  EXPECT_THAT(*trials, SizeIs(2 * 2 * 2 * kTrialSeeds));
}

TEST_F(CellsOfTest, EachAgainAtOtherComputingTimes) {
  study_.compute = "10ms";
  study_.apply = "2GB";
  study_.compute_scales = {1, 0.5, 2};
  const absl::StatusOr<std::vector<Cell>> cells = CellsOf(study_);
  RUBATO_ASSERT_OK(cells);
  ASSERT_THAT(*cells, SizeIs(18));
  EXPECT_EQ((*cells)[6].name, "sync-w2-c0.5-s0");
  EXPECT_THAT((*cells)[0].arguments, Contains("10ms"));
  EXPECT_THAT((*cells)[6].arguments, Contains("5000000ns"));
  EXPECT_THAT((*cells)[17].arguments, Contains("20000000ns"));
  for (const Cell& cell : *cells) EXPECT_THAT(cell.arguments, Contains("2GB"));
}

TEST_F(CellsOfTest, TrialsHaveSeedsOfTheirOwnAndEachModeAsMany) {
  study_.learning_rates = {"0.03", "0.1"};
  const absl::StatusOr<std::vector<Cell>> trials = TrialsOf(study_);
  RUBATO_ASSERT_OK(trials);
  ASSERT_THAT(*trials, SizeIs(2 * 2 * kTrialSeeds));
  EXPECT_EQ((*trials)[0].name, "sync-w2-lr0.03-s1000");
  EXPECT_TRUE((*trials)[0].is_trial);
  EXPECT_THAT((*trials)[11].arguments,
              AllOf(Contains("consistency={mode: async}"), Contains("optimizer.learning_rate=0.1"),
                    Contains("seed=1002")));
  const absl::StatusOr<std::vector<Cell>> cells =
      CellsOf(study_, {{{2, 0, 0}, "0.1"}, {{2, 0, 1}, "0.03"}});
  RUBATO_ASSERT_OK(cells);
  ASSERT_THAT(*cells, SizeIs(6));
  EXPECT_THAT((*cells)[0].arguments, Contains("optimizer.learning_rate=0.1"));
  EXPECT_THAT((*cells)[5].arguments, Contains("optimizer.learning_rate=0.03"));
  EXPECT_FALSE((*cells)[5].is_trial);
}

TEST_F(CellsOfTest, AValidationSplitOfTheJobStays) {
  study_.set = {"data.validation=0.3"};
  const absl::StatusOr<std::vector<Cell>> cells = CellsOf(study_);
  RUBATO_ASSERT_OK(cells);
  EXPECT_THAT((*cells)[0].arguments, Not(Contains("data.validation=0.1")));
}

TEST_F(CellsOfTest, RefusesWhatCannotBeCompared) {
  const auto refusal = [this] { return std::string(CellsOf(study_).status().message()); };
  const Study sound = study_;
  study_.modes = {"sync"};
  EXPECT_THAT(refusal(), HasSubstr("two or more"));
  study_.modes = {"sync", "async", "async"};
  EXPECT_THAT(refusal(), HasSubstr("--mode async is given twice"));
  study_.modes = {"sync", "asink"};
  EXPECT_THAT(refusal(), StartsWith("--mode asink: consistency.mode: found asink"));
  study_ = sound;
  study_.workers = {100000};
  EXPECT_THAT(refusal(), StartsWith("--workers: cluster.workers.start: found 100000"));
  study_ = sound;
  study_.baseline = "bounded";
  EXPECT_THAT(refusal(), HasSubstr("--baseline"));
  study_ = sound;
  study_.seeds = 21;
  EXPECT_THAT(refusal(), HasSubstr("expected 1 to 20"));
  study_ = sound;
  study_.compute_scales = {1, 0};
  EXPECT_THAT(refusal(), HasSubstr("--compute-scales: found 0"));
  study_.compute_scales = {0.5, 1};
  EXPECT_THAT(refusal(), HasSubstr("--compute-scales: found 0.5,1, expected 1 first"));
  study_.compute_scales = {1, 2, 2};
  EXPECT_THAT(refusal(), HasSubstr("--compute-scales 2 is given twice"));
  study_ = sound;
  study_.workers = {4, 8, 4};
  EXPECT_THAT(refusal(), HasSubstr("--workers 4 is given twice"));
  study_ = sound;
  study_.compute = "soon";
  EXPECT_THAT(refusal(), HasSubstr("--compute: found soon"));
  study_ = sound;
  for (const std::string rate : {"0", "-1", "fast", "nan", ""}) {
    study_.learning_rates = {rate};
    EXPECT_THAT(refusal(), HasSubstr("--learning-rates: found"));
  }
  study_.learning_rates = {"0.1", "0.10"};
  EXPECT_THAT(refusal(), HasSubstr("0.1 is given twice"));
  study_ = sound;
  study_.set = {"train.until={time: 10s}"};
  EXPECT_THAT(refusal(), HasSubstr("train.until is a time"));
  study_.set = {"loss=mse"};
  EXPECT_THAT(refusal(), HasSubstr("--target: found eval/accuracy, expected eval/loss=NUMBER"));
  study_ = sound;
  study_.target = {"f1", 0.8, true};
  EXPECT_THAT(refusal(), HasSubstr("--target: found eval/f1,at_least=0.8, expected eval/accuracy"));
}

TEST_F(CellsOfTest, RefusesWhatEachRunWouldBeRefusedFor) {
  const Study sound = study_;
  for (const auto& [flag, said] : {std::pair(&Study::compute, "--compute: found stragler"),
                                   {&Study::latency, "--latency: found stragler"},
                                   {&Study::bandwidth, "--bandwidth: found stragler"},
                                   {&Study::apply, "--apply: found stragler"}}) {
    study_ = sound;
    study_.*flag = "stragler";
    EXPECT_THAT(CellsOf(study_), IsError(absl::StatusCode::kInvalidArgument, HasSubstr(said)));
  }
  study_ = sound;
  study_.speeds = {"fixed", "stragler"};
  EXPECT_THAT(CellsOf(study_),
              IsError(absl::StatusCode::kInvalidArgument, HasSubstr("speeds: found stragler")));
  study_.speeds = {"fixed", "fixed"};
  EXPECT_THAT(CellsOf(study_), IsError(absl::StatusCode::kInvalidArgument,
                                       HasSubstr("--speeds fixed is given twice")));
  study_.workers = {4, 2};
  study_.speeds = {"straggler:worker=3"};
  EXPECT_THAT(CellsOf(study_), IsError(absl::StatusCode::kInvalidArgument, HasSubstr("worker")));
}

class ScriptCellsTest : public CellsOfTest {
 protected:
  ScriptCellsTest() {
    script_ = ::testing::TempDir() + "/train.py";
    std::ofstream(script_) << "import rubato\n";
    std::ofstream(study_.config)
        << "version: 1\nname: study\ncluster: {workers: 2}\n"
           "script: [python3, "
        << script_
        << "]\n"
           "train: {batch_size: 64, micro_batches: 4, until: {epochs: 5}}\n";
    study_.target.is_script = study_.processes = true;
  }

  std::string Refusal() const { return std::string(CellsOf(study_).status().message()); }

  std::string script_;
};

TEST_F(ScriptCellsTest, HaveNoKeyThatIsTheScripts) {
  study_.compute = "20ms";
  study_.speeds = {"exponential"};
  const absl::StatusOr<std::vector<Cell>> cells = CellsOf(study_);
  RUBATO_ASSERT_OK(cells);
  ASSERT_THAT(*cells, SizeIs(6));
  EXPECT_THAT((*cells)[5].arguments,
              ElementsAre("train", study_.config, "--speeds", "exponential", "--compute", "20ms",
                          "--set", "metrics.every={epochs: 0.012500000000000001}", "--set",
                          "metrics.tensorboard=false", "--set", "checkpoint.keep_last=1", "--set",
                          "cluster.address=127.0.0.1:0", "--set", "consistency={mode: async}",
                          "--set", "cluster.workers=2", "--set", "seed=2"));
}

TEST_F(ScriptCellsTest, AreRefusedWhereTheScriptDecides) {
  const Study sound = study_;
  study_.processes = false;
  EXPECT_THAT(Refusal(), HasSubstr("cannot be simulated: add --processes"));
  study_ = sound;
  study_.learning_rates = {"0.1", "0.2"};
  EXPECT_THAT(Refusal(), StartsWith("--learning-rates: found 0.1,0.2, expected none"));
  study_ = sound;
  study_.evaluations = 20;
  EXPECT_THAT(Refusal(), StartsWith("--evaluations: found 20, expected none"));
  study_ = sound;
  for (const auto& [until, every, is_sound] : {std::tuple("{epochs: 2}", "{epochs: 1}", true),
                                               {"{epochs: 1}", "{epochs: 1}", false},
                                               {"{steps: 10}", "{samples: 640}", false},
                                               {"{samples: 641}", "{steps: 10}", true},
                                               {"{steps: 10}", "{epochs: 9}", true}}) {
    study_.set = {absl::StrCat("train.until=", until), absl::StrCat("evaluation.every=", every)};
    EXPECT_EQ(Refusal().empty(), is_sound) << until << " " << every << " " << Refusal();
    EXPECT_EQ(absl::StartsWith(Refusal(), "evaluation.every: a run would be tested"), !is_sound);
  }
}

TEST_F(ScriptCellsTest, AreOthersWhenTheScriptHasChanged) {
  const absl::StatusOr<std::string> first = StudyJson(study_);
  RUBATO_ASSERT_OK(first);
  std::ofstream(script_, std::ios::app) << "import torch\n";
  EXPECT_THAT(StudyJson(study_), Not(Yields(*first)));
}

TEST_F(CellsOfTest, AStudyThatIsSimulatedHasTheNumberOfTheTimingModel) {
  const std::string number = absl::StrCat("\"timing_model\": ", kTimingModel);
  EXPECT_THAT(StudyJson(study_).value_or(""), HasSubstr(number));
  study_.processes = true;
  EXPECT_THAT(StudyJson(study_).value_or("timing"), Not(HasSubstr("timing")));
}

// Its results would be those of two jobs.
TEST_F(CellsOfTest, AStudyOfAJobThatHasChangedIsAnother) {
  const std::string trace = ::testing::TempDir() + "/trace";
  std::ofstream(trace) << "0,1\n1,2\n";
  study_.speeds = {"exponential", "jitter+trace:" + trace};
  const absl::StatusOr<std::string> first = StudyJson(study_);
  RUBATO_ASSERT_OK(first);
  EXPECT_THAT(StudyJson(study_), Yields(*first));
  std::ofstream(study_.config, std::ios::app) << "# only a comment\n";
  EXPECT_THAT(StudyJson(study_), Yields(*first));
  Study elsewhere = study_;
  elsewhere.config = ::testing::TempDir() + "/./job.yaml";
  EXPECT_THAT(StudyJson(elsewhere), Yields(*first));
  std::ofstream(trace) << "0,1\n1,3\n";
  EXPECT_THAT(StudyJson(study_), Not(Yields(*first)));
  std::ofstream(trace) << "0,1\n1,2\n";
  std::ofstream(study_.config, std::ios::app) << "seed: 7\n";
  EXPECT_THAT(StudyJson(study_), Not(Yields(*first)));
}

}  // namespace
}  // namespace rubato
