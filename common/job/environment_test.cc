#include "common/job/environment.h"

#include <stdlib.h>

#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "common/base/status_matchers.h"
#include "common/job/job.h"
#include "gmock/gmock.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::google::protobuf::util::MessageDifferencer;
using ::testing::Eq;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kJob[] =
    "version: 1\n"
    "name: sample\n"
    "cluster: {servers: 2, workers: 2, address: \"10.0.0.1:1000\"}\n"
    "data: {format: glyphs}\n"
    "model: {layers: [flatten, linear: {out_features: 10}]}\n"
    "optimizer: {learning_rate: 0.5, momentum: 0.25}\n"
    "train: {batch_size: 64, until: {epochs: 3}}\n";

struct Loaded {
  absl::StatusOr<proto::Job> job;
  Sources sources;
};

Loaded Load(const Environment& environment, std::vector<std::string> overrides = {}) {
  const std::string path = testing::TempDir() + "/environment_job.yaml";
  std::ofstream(path) << kJob;
  Sources sources;
  absl::StatusOr<proto::Job> job = LoadJob(path, overrides, environment, &sources);
  return {std::move(job), sources};
}

std::string Mistake(const Environment& environment) {
  return std::string(Load(environment).job.status().message());
}

TEST(EnvironmentTest, FlagBeatsEnvironmentBeatsFile) {
  const Environment environment = {{"RUBATO__OPTIMIZER__LEARNING_RATE", "0.1"},
                                   {"RUBATO__OPTIMIZER__MOMENTUM", "0.75"},
                                   {"RUBATO__SEED", "7"}};
  const Loaded loaded = Load(environment, {"optimizer.momentum=0.125"});
  RUBATO_ASSERT_OK(loaded.job);
  EXPECT_EQ(loaded.job->optimizer().learning_rate(), 0.1);
  EXPECT_EQ(loaded.job->optimizer().momentum(), 0.125);
  EXPECT_EQ(loaded.job->seed(), 7u);
  EXPECT_EQ(loaded.job->train().batch_size(), 64);
  EXPECT_EQ(loaded.sources,
            (Sources{{"optimizer.learning_rate", "RUBATO__OPTIMIZER__LEARNING_RATE"},
                     {"optimizer.momentum", "--set"},
                     {"seed", "RUBATO__SEED"}}));
}

TEST(EnvironmentTest, WholeMapsAndListsAreYaml) {
  const Loaded loaded = Load({{"RUBATO__TRAIN", "{batch_size: 30, until: {steps: 5}}"},
                              {"RUBATO__TRAIN__MICRO_BATCHES", "3"},
                              {"RUBATO__MODEL__LAYERS", "[flatten]"}});
  RUBATO_ASSERT_OK(loaded.job);
  EXPECT_EQ(loaded.job->train().until().steps(), 5);
  EXPECT_EQ(loaded.job->train().micro_batches(), 3);
  EXPECT_EQ(loaded.job->model().layers_size(), 1);
}

TEST(EnvironmentTest, SingleUnderscoresSetNothing) {
  const Loaded loaded = Load({{"RUBATO_PORT", "tcp://10.96.0.7:80"},
                              {"RUBATO_SEED", "9"},
                              {"RUBATO_SERVICE__HOST", "x"},
                              {"RUBATO", "x"},
                              {"XRUBATO__SEED", "9"}});
  RUBATO_ASSERT_OK(loaded.job);
  EXPECT_EQ(loaded.job->seed(), 0u);
  EXPECT_TRUE(loaded.sources.empty());
}

TEST(EnvironmentTest, MistakesNameTheVariable) {
  const std::map<std::string, std::pair<Environment, std::string>> cases = {
      {"misspelt key",
       {{{"RUBATO__OPTIMIZER__LEARNING_RAT", "1"}},
        "RUBATO__OPTIMIZER__LEARNING_RAT: found an unknown key; did you "
        "mean RUBATO__OPTIMIZER__LEARNING_RATE?"}},
      {"key elsewhere",
       {{{"RUBATO__LEARNING_RATE", "1"}},
        "RUBATO__LEARNING_RATE: found an unknown key; did you mean "
        "RUBATO__OPTIMIZER__LEARNING_RATE?"}},
      {"bad value",
       {{{"RUBATO__SEED", "-1"}},
        "RUBATO__SEED: found -1, expected an integer from 0 to 18446744073709551615"}},
      {"empty",
       {{{"RUBATO__OPTIMIZER__MOMENTUM", ""}},
        "RUBATO__OPTIMIZER__MOMENTUM: found nothing, expected a number at least 0 and below 1"}},
      {"no key", {{{"RUBATO__", "1"}}, "RUBATO__: \"\": found an unknown key"}},
      {"world size",
       {{{"WORLD_SIZE", "many"}},
        "WORLD_SIZE: cluster.workers.start: found many, expected an integer from 1 to 65536"}},
      {"port", {{{"MASTER_PORT", "http"}}, "MASTER_PORT: cluster.address: found "}},
  };
  for (const auto& [name, what] : cases) {
    EXPECT_THAT(Mistake(what.first), HasSubstr(what.second)) << name;
    EXPECT_THAT(Mistake(what.first), Not(HasSubstr("\n"))) << name;
  }
}

TEST(EnvironmentTest, WorldSizeIsTheNumberOfWorkers) {
  const Loaded loaded = Load({{"WORLD_SIZE", "5"}});
  RUBATO_ASSERT_OK(loaded.job);
  EXPECT_EQ(loaded.job->cluster().workers().start(), 5);
  EXPECT_EQ(loaded.job->cluster().workers().max(), 5);
  EXPECT_EQ(loaded.sources.at("cluster.workers.start"), "WORLD_SIZE");

  const Loaded ours = Load({{"WORLD_SIZE", "5"}, {"RUBATO__CLUSTER__WORKERS", "3"}});
  RUBATO_ASSERT_OK(ours.job);
  EXPECT_EQ(ours.job->cluster().workers().start(), 3);
  EXPECT_EQ(ours.sources, (Sources{{"cluster.workers", "RUBATO__CLUSTER__WORKERS"}}));

  const Loaded flag = Load({{"WORLD_SIZE", "many"}}, {"cluster.workers=4"});
  RUBATO_ASSERT_OK(flag.job);
  EXPECT_EQ(flag.job->cluster().workers().start(), 4);
}

TEST(EnvironmentTest, MasterIsShardZero) {
  const auto address = [](const Environment& environment) {
    const Loaded loaded = Load(environment);
    return loaded.job.ok() ? loaded.job->cluster().address()
                           : std::string(loaded.job.status().message());
  };
  EXPECT_EQ(address({{"MASTER_ADDR", "node-7"}, {"MASTER_PORT", "2222"}}), "node-7:2222");
  EXPECT_EQ(address({{"MASTER_ADDR", "node-7"}}), "node-7:1000");
  EXPECT_EQ(address({{"MASTER_PORT", "2222"}}), "10.0.0.1:2222");
  EXPECT_EQ(address({{"MASTER_ADDR", "fd00::1"}, {"MASTER_PORT", "2222"}}), "[fd00::1]:2222");
  EXPECT_EQ(address({{"MASTER_ADDR", ""}, {"MASTER_PORT", ""}}), "10.0.0.1:1000");
  // What Kubernetes injects for a service called master.
  EXPECT_EQ(address({{"MASTER_PORT", "tcp://10.96.0.7:80"}}), "10.0.0.1:1000");
  EXPECT_EQ(address({{"MASTER_ADDR", "a"}, {"RUBATO__CLUSTER__ADDRESS", "\"b:1\""}}), "b:1");
}

TEST(EnvironmentTest, RankOnAHost) {
  EXPECT_EQ(LocalRank({{"RANK", "7"}})->value_or(-1), -1);
  EXPECT_EQ(LocalRank({{"RANK", "7"}, {"LOCAL_RANK", "3"}})->value_or(-1), 3);
  EXPECT_THAT(LocalRank({{"LOCAL_RANK", "-1"}}).status(),
              IsError(absl::StatusCode::kInvalidArgument, HasSubstr("LOCAL_RANK: found ")));
}

TEST(EnvironmentTest, RankOfAWorker) {
  const auto rank = [](const Environment& environment) {
    const auto found = WorkerRank(environment);
    RUBATO_EXPECT_OK(found);
    return found.ok() ? found->value_or(-1) : -2;
  };
  EXPECT_EQ(rank({}), -1);
  EXPECT_EQ(rank({{"LOCAL_RANK", "1"}}), 1);
  EXPECT_EQ(rank({{"LOCAL_RANK", "1"}, {"JOB_COMPLETION_INDEX", "2"}}), 2);
  EXPECT_EQ(rank({{"LOCAL_RANK", "1"}, {"JOB_COMPLETION_INDEX", "2"}, {"RANK", "3"}}), 3);
  EXPECT_EQ(rank({{"RANK", ""}, {"JOB_COMPLETION_INDEX", "2"}}), 2);
  for (const char* bad : {"x", "-1", "1.5", "65536", "99999999999"}) {
    EXPECT_THAT(WorkerRank({{"RANK", bad}}).status(),
                IsError(absl::StatusCode::kInvalidArgument, HasSubstr("RANK: found ")))
        << bad;
  }
}

TEST(EnvironmentTest, TheResolvedJobSaysWhatCameFromWhereAndLoadsAgain) {
  const Loaded loaded = Load({{"RUBATO__OPTIMIZER__LEARNING_RATE", "0.1"},
                              {"RUBATO__MODEL__LAYERS", "[flatten, linear: {out_features: 10}]"},
                              {"WORLD_SIZE", "4"},
                              {"MASTER_ADDR", "node-7"}},
                             {"seed=3", "optimizer.momentum=0.5", "train.micro_batches=8"});
  RUBATO_ASSERT_OK(loaded.job);
  const std::string yaml = ResolvedYaml(*loaded.job, loaded.sources);
  EXPECT_THAT(yaml, HasSubstr("\nseed: 3  # from --set\n"));
  EXPECT_THAT(yaml, HasSubstr("  # start from WORLD_SIZE\n"));
  EXPECT_THAT(yaml, HasSubstr("  address: \"node-7:1000\"  # from MASTER_ADDR\n"));
  EXPECT_THAT(yaml, HasSubstr("  layers:  # from RUBATO__MODEL__LAYERS\n"));
  EXPECT_THAT(yaml, HasSubstr("learning_rate: 0.1"));
  EXPECT_THAT(yaml, HasSubstr("from RUBATO__OPTIMIZER__LEARNING_RATE"));
  EXPECT_THAT(yaml, HasSubstr("momentum"));

  const std::string path = testing::TempDir() + "/environment_resolved.yaml";
  std::ofstream(path) << yaml;
  Sources none;
  const absl::StatusOr<proto::Job> again = LoadJob(path, {}, {}, &none);
  RUBATO_ASSERT_OK(again);
  EXPECT_TRUE(MessageDifferencer::Equals(*again, *loaded.job));
  EXPECT_TRUE(none.empty());
  EXPECT_EQ(JobDigest(*again), JobDigest(*loaded.job));
  // The digest is of what the values are, not of where they came from.
  EXPECT_NE(JobDigest(*again), JobDigest(*Load({}).job));
  EXPECT_EQ(JobDigest(*Load({{"RUBATO__SEED", "3"}}).job), JobDigest(*Load({}, {"seed=3"}).job));
}

TEST(EnvironmentTest, TheProcessesOwnIsReadOnceAndCanBeRemoved) {
  setenv("RUBATO__SEED", "11", 1);
  setenv("RUBATO_PORT", "tcp://10.96.0.7:80", 1);
  setenv("WORLD_SIZE", "3", 1);
  setenv("RANK", "2", 1);
  const std::string path = testing::TempDir() + "/environment_job.yaml";
  std::ofstream(path) << kJob;
  const absl::StatusOr<proto::Job> job = LoadJob(path);
  RUBATO_ASSERT_OK(job);
  EXPECT_EQ(job->seed(), 11u);
  EXPECT_EQ(job->cluster().workers().start(), 3);
  RemoveJobVariables();
  EXPECT_EQ(getenv("RUBATO__SEED"), nullptr);
  EXPECT_EQ(getenv("RANK"), nullptr);
  EXPECT_NE(getenv("RUBATO_PORT"), nullptr);
  const absl::StatusOr<proto::Job> after = LoadJob(path);
  RUBATO_ASSERT_OK(after);
  EXPECT_EQ(after->seed(), 0u);
  EXPECT_EQ(after->cluster().workers().start(), 2);
}

}  // namespace
}  // namespace rubato
