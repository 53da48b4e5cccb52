// What a job file means when nothing is wrong. Long because each kind of key has its case here.
#include "common/job/job.h"

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::google::protobuf::util::MessageDifferencer;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The shortest job.
constexpr char kMinimal[] =
    "version: 1\n"
    "name: minimal\n"
    "data: {format: glyphs}\n"
    "model: {layers: [flatten, linear: {out_features: 10}]}\n"
    "train: {batch_size: 64, until: {epochs: 3}}\n";

std::string JobFile() { return testing::TempDir() + "/job.yaml"; }

// Loads `text` as the file job.yaml; that is also its name in errors.
absl::StatusOr<proto::Job> Load(absl::string_view text, std::vector<std::string> overrides = {}) {
  std::ofstream(JobFile(), std::ios::binary) << text;
  absl::StatusOr<proto::Job> job = LoadJob(JobFile(), overrides);
  if (job.ok()) return job;
  return absl::Status(job.status().code(),
                      absl::StrReplaceAll(job.status().message(), {{JobFile(), "job.yaml"}}));
}

proto::Job LoadMinimal(std::vector<std::string> overrides = {}) {
  const absl::StatusOr<proto::Job> job = Load(kMinimal, overrides);
  RUBATO_EXPECT_OK(job);
  return job.ok() ? *job : proto::Job();
}

TEST(LoadJobTest, FillsInEveryDefault) {
  EXPECT_EQ(ResolvedYaml(LoadMinimal()),
            "version: 1\n"
            "name: minimal\n"
            "seed: 0\n"
            "cluster:\n"
            "  servers: 1\n"
            "  workers: {start: 1, min: 1, max: 1}\n"
            "  address: \"127.0.0.1:29500\"\n"
            "  start_timeout: 1m\n"
            "  lease: 5s\n"
            "  stall_timeout: 10m\n"
            "  max_restarts: 3\n"
            "  server_threads: 1\n"
            "  gpus_per_worker: 1\n"
            "  bind_workers: true\n"
            "  dedicated_coordinator: false\n"
            "device:\n"
            "  type: auto\n"
            "  threads: 1\n"
            "  isa: auto\n"
            "  precision: float32\n"
            "  attention: auto\n"
            "  convolution: auto\n"
            "  exchange: auto\n"
            "data:\n"
            "  format: glyphs\n"
            "  seed: 0\n"
            "  train_size: 60000\n"
            "  test_size: 10000\n"
            "  augment: {crop_padding: 0, horizontal_flip: false}\n"
            "  prefetch: 2\n"
            "model:\n"
            "  layers:\n"
            "    - flatten\n"
            "    - linear: {out_features: 10, bias: true}\n"
            "loss: {name: cross_entropy, label_smoothing: 0}\n"
            "optimizer:\n"
            "  name: sgd\n"
            "  learning_rate: 0.01\n"
            "  learning_rate_parity: true\n"
            "  momentum: 0\n"
            "  dampening: 0\n"
            "  nesterov: false\n"
            "  weight_decay: 0\n"
            "  schedule: {name: constant}\n"
            "consistency: {mode: sync}\n"
            "wire:\n"
            "  chunk: 256KiB\n"
            "  shared_memory: auto\n"
            "  push: {codec: float32}\n"
            "  pull: float32\n"
            "train:\n"
            "  batch_size: 64\n"
            "  micro_batches: 1\n"
            "  until: {epochs: 3}\n"
            "  on_non_finite: stop\n"
            "metrics: {every: {steps: 50}, tensorboard: true}\n"
            "log: {level: info, format: text}\n"
            "evaluation: {split: test, every: {epochs: 1}}\n"
            "checkpoint: {every: {time: 5m}, keep_last: 3, resume: never}\n"
            "security: {mode: token, readers: owner}\n");
}

// Those of PyTorch 1.13's constructors.
TEST(LoadJobTest, AnOptimizersDefaultsAreItsOwn) {
  const std::vector<std::pair<const char*, const char*>> kOptimizers = {
      {"adam",
       "  name: adam\n"
       "  learning_rate: 0.001\n"
       "  learning_rate_parity: true\n"
       "  betas: [0.9, 0.999]\n"
       "  amsgrad: false\n"
       "  eps: 1e-08\n"
       "  weight_decay: 0\n"},
      {"adamw",
       "  name: adamw\n"
       "  learning_rate: 0.001\n"
       "  learning_rate_parity: true\n"
       "  betas: [0.9, 0.999]\n"
       "  amsgrad: false\n"
       "  eps: 1e-08\n"
       "  weight_decay: 0.01\n"},
      {"adagrad",
       "  name: adagrad\n"
       "  learning_rate: 0.01\n"
       "  learning_rate_parity: true\n"
       "  lr_decay: 0\n"
       "  initial_accumulator_value: 0\n"
       "  eps: 1e-10\n"
       "  weight_decay: 0\n"},
      {"rmsprop",
       "  name: rmsprop\n"
       "  learning_rate: 0.01\n"
       "  learning_rate_parity: true\n"
       "  momentum: 0\n"
       "  alpha: 0.99\n"
       "  centered: false\n"
       "  eps: 1e-08\n"
       "  weight_decay: 0\n"},
  };
  for (const auto& [name, keys] : kOptimizers) {
    EXPECT_THAT(ResolvedYaml(LoadMinimal({absl::StrCat("optimizer=", name)})),
                HasSubstr(absl::StrCat("optimizer:\n", keys, "  schedule")));
  }
  const proto::Job given = LoadMinimal({"optimizer={name: adamw, weight_decay: 0, betas: [0, 0]}"});
  EXPECT_EQ(given.optimizer().weight_decay(), 0);
  EXPECT_EQ(given.optimizer().betas_size(), 2);
  EXPECT_EQ(given.optimizer().betas(1), 0);
}

TEST(LoadJobTest, AParameterGroupHasTheKeysThatItIsGiven) {
  const proto::Job job =
      LoadMinimal({"optimizer.groups=[{match: \"*.bias\", weight_decay: 0}, {match: \"1.?\", "
                   "learning_rate: 0}]"});
  ASSERT_EQ(job.optimizer().groups_size(), 2);
  EXPECT_EQ(job.optimizer().groups(0).match(), "*.bias");
  EXPECT_TRUE(job.optimizer().groups(0).has_weight_decay());
  EXPECT_FALSE(job.optimizer().groups(0).has_learning_rate());
  EXPECT_EQ(job.optimizer().groups(1).match(), "1.?");
  EXPECT_TRUE(job.optimizer().groups(1).has_learning_rate());
  EXPECT_THAT(ResolvedYaml(job), HasSubstr("  groups:\n"
                                           "    - {match: \"*.bias\", weight_decay: 0}\n"
                                           "    - {match: \"1.?\", learning_rate: 0}\n"));
}

TEST(LoadJobTest, AScalarSetsThePrincipalField) {
  const proto::Job job = LoadMinimal({"cluster.workers=3", "consistency=async", "device=cpu",
                                      "loss=cross_entropy", "optimizer=sgd", "log=error"});
  EXPECT_EQ(job.cluster().workers().start(), 3);
  EXPECT_EQ(job.cluster().workers().min(), 1);
  EXPECT_EQ(job.cluster().workers().max(), 3);
  EXPECT_EQ(job.consistency().mode().mode(), proto::Mode::NAME_ASYNC);
  EXPECT_EQ(job.device().type(), proto::Device::TYPE_CPU);
  EXPECT_EQ(job.optimizer().name(), proto::Optimizer::NAME_SGD);
  EXPECT_EQ(job.log().level(), proto::Log::LEVEL_ERROR);
}

TEST(LoadJobTest, ALayerIsABareNameOrAMapOfOneKey) {
  const proto::Job job = LoadMinimal(
      {"model.layers=[flatten, relu: , linear: {out_features: 5, bias: false}, relu: {}]"});
  ASSERT_EQ(job.model().layers_size(), 4);
  EXPECT_TRUE(job.model().layers(0).has_flatten());
  EXPECT_TRUE(job.model().layers(1).has_relu());
  EXPECT_EQ(job.model().layers(2).linear().out_features(), 5);
  EXPECT_FALSE(job.model().layers(2).linear().bias());
  EXPECT_TRUE(job.model().layers(3).has_relu());
}

TEST(LoadJobTest, AModelIsItsLayersOrAName) {
  const auto load = [](const std::string& model) {
    std::ofstream(JobFile()) << "version: 1\nname: a\nmodel: " << model
                             << "\ntrain: {batch_size: 4, until: {steps: 1}}\n";
    return LoadJob(JobFile());
  };
  const absl::StatusOr<proto::Job> cnn = load("cnn");
  RUBATO_ASSERT_OK(cnn);
  EXPECT_EQ(cnn->model().preset(), proto::Model::PRESET_CNN);
  EXPECT_THAT(ResolvedYaml(*cnn), HasSubstr("model: {preset: cnn, padding: 0}\n"));
  const absl::StatusOr<proto::Job> mlp = load("{preset: mlp, hidden: [30]}");
  RUBATO_ASSERT_OK(mlp);
  EXPECT_THAT(mlp->model().hidden(), ElementsAre(30));
  EXPECT_THAT(load("mlp")->model().hidden(), ElementsAre(512, 256));
  EXPECT_EQ(load("char_gpt")->model().channels(), 128);
  const std::pair<const char*, const char*> kMistakes[] = {
      {"{preset: cnn, layers: [relu]}",
       "model.layers: found with preset: cnn, expected only with preset: none"},
      {"{hidden: [3], layers: [relu]}",
       "model.hidden: found with preset: none, expected only with preset: mlp"},
      {"{preset: char_gpt, channels: 30, heads: 4}",
       "model.heads: found 4, expected a divisor of channels, which is 30"},
      {"cn", "expected none, mlp, cnn, lenet, char_gpt, resnet20, resnet18 or script"},
      {"{layers: [{residual: {layers: []}}]}",
       "model.layers[0].residual.layers: found an empty list"},
      // It would be the default, in the run's own job file too.
      {"{preset: mlp, hidden: []}", "model.hidden: found an empty list, expected"},
      {"{preset: mlp}\noptimizer: {name: adam, betas: []}",
       "optimizer.betas: found an empty list, expected"},
      {"{layers: [batch_norm: {eps: 1e-46}]}",
       "model.layers[0].batch_norm.eps: found 1e-46, expected a number at least 1e-30"},
  };
  for (const auto& [model, sentence] : kMistakes) {
    EXPECT_THAT(load(model), IsError(absl::StatusCode::kInvalidArgument, HasSubstr(sentence)))
        << model;
  }
}

TEST(LoadJobTest, ReadsDurationsSizesAndNumbers) {
  const proto::Job job =
      LoadMinimal({"cluster.start_timeout=1.5h", "wire.chunk=1MiB", "seed=18446744073709551615",
                   "optimizer.learning_rate=1e-3", "train.until.epochs=0.5"});
  EXPECT_EQ(job.cluster().start_timeout(), 5400);
  EXPECT_EQ(job.wire().chunk(), 1048576);
  EXPECT_EQ(job.seed(), 18446744073709551615u);
  EXPECT_EQ(job.optimizer().learning_rate(), 1e-3);
  EXPECT_EQ(job.train().until().epochs(), 0.5);
}

TEST(LoadJobTest, ACosineEndsWithTheTrainingUnlessToldOtherwise) {
  EXPECT_EQ(LoadMinimal({"optimizer.schedule=cosine"}).optimizer().schedule().until().epochs(), 3);
  EXPECT_EQ(LoadMinimal({"optimizer.schedule={name: cosine, until: {steps: 7}}"})
                .optimizer()
                .schedule()
                .until()
                .steps(),
            7);
  EXPECT_FALSE(LoadMinimal().optimizer().schedule().has_until());
}

TEST(LoadJobTest, ReadsAnchorsCommentsAndCarriageReturns) {
  const absl::StatusOr<proto::Job> job = Load(
      "\xef\xbb\xbf# a comment\r\n"
      "version: 1\r\n"
      "name: &name anchored\r\n"
      "data: {format: glyphs}\r\n"
      "model: {layers: [linear: &wide {out_features: 10}, linear: *wide]}\r\n"
      "train: {batch_size: 64, until: {epochs: 3}}\r\n"
      "...\r\n");
  RUBATO_ASSERT_OK(job);
  EXPECT_EQ(job->name(), "anchored");
  EXPECT_EQ(job->model().layers(1).linear().out_features(), 10);
}

TEST(LoadJobTest, PathsAreRelativeToTheFileAndInOverridesToTheCurrentFolder) {
  const std::string folder = testing::TempDir() + "/paths";
  std::filesystem::create_directories(folder + "/configs");
  std::ofstream(folder + "/configs/job.yaml")
      << absl::StrReplaceAll(kMinimal, {{"format: glyphs", "format: idx, path: ../data//x/"}});
  absl::StatusOr<proto::Job> job = LoadJob(folder + "/configs/job.yaml");
  RUBATO_ASSERT_OK(job);
  EXPECT_EQ(std::filesystem::path(job->data().path()),
            std::filesystem::path(folder + "/data/x").lexically_normal());

  job = LoadJob(folder + "/configs/job.yaml", {"data.path=here"});
  RUBATO_ASSERT_OK(job);
  EXPECT_EQ(job->data().path(), std::filesystem::current_path() / "here");

  job = LoadJob(folder + "/configs/job.yaml", {"data.path=/there"});
  RUBATO_ASSERT_OK(job);
  EXPECT_EQ(job->data().path(), "/there");

  const std::string start = std::filesystem::current_path();
  std::filesystem::current_path(folder);
  job = LoadJob("configs/job.yaml");
  std::filesystem::current_path(start);
  RUBATO_ASSERT_OK(job);
  EXPECT_EQ(std::filesystem::path(job->data().path()),
            std::filesystem::path(folder + "/data/x").lexically_normal());
}

TEST(LoadJobTest, OverridesReplaceWhatTheFileSays) {
  const proto::Job job =
      LoadMinimal({"train={batch_size: 8, until: {epochs: 1}}", "train.until.steps=9",
                   "train.micro_batches=2", "model.layers=[relu]", "name=\"7\"", "name=second"});
  EXPECT_EQ(job.train().batch_size(), 8);
  EXPECT_EQ(job.train().micro_batches(), 2);
  EXPECT_EQ(job.train().until().steps(), 9);
  EXPECT_FALSE(job.train().until().has_epochs());
  EXPECT_EQ(job.model().layers_size(), 1);
  EXPECT_EQ(job.name(), "second");
}

TEST(LoadJobTest, AnIpv6AddressNeedsNoQuotesInAnOverride) {
  for (const char* address : {"[::1]:29500", "[fd00::1]:1,[fd00::2]:1"}) {
    EXPECT_EQ(LoadMinimal({absl::StrCat("cluster.address=", address)}).cluster().address(),
              address);
    EXPECT_EQ(LoadMinimal({absl::StrCat("cluster.address='", address, "'")}).cluster().address(),
              address);
  }
}

TEST(LoadJobTest, AnOverrideMendsAMistakeOfTheFile) {
  const absl::StatusOr<proto::Job> job =
      Load(absl::StrCat(kMinimal, "device: gpu\noptimizer: {momentum: 2, learning_rate: x}\n"),
           {"device.type=cpu", "optimizer={}"});
  RUBATO_ASSERT_OK(job);
  EXPECT_EQ(job->optimizer().learning_rate(), 0.01);
}

TEST(LoadJobTest, SaysWhatIsWrongWithTheFileItself) {
  const std::string folder = testing::TempDir() + "/folder.yaml";
  std::filesystem::create_directories(folder);
  EXPECT_THAT(LoadJob("/no/such.yaml"),
              IsError(absl::StatusCode::kNotFound,
                      "/no/such.yaml: cannot read the job: No such file or directory"));
  EXPECT_THAT(LoadJob(folder), IsError(absl::StatusCode::kInvalidArgument,
                                       folder + ": found a folder, expected a job's YAML file"));
  EXPECT_THAT(LoadJob("/dev/zero"),
              IsError(absl::StatusCode::kInvalidArgument,
                      "/dev/zero: found more than 1 MiB, expected a job's YAML file"));
}

// The process that reads the resolved job must read the same job.
TEST(ResolvedYamlTest, IsReadBackToAnEqualMessage) {
  const std::vector<std::vector<std::string>> kOverrides = {
      {},
      {"seed=18446744073709551615", "optimizer.learning_rate=0.1",
       "optimizer.momentum=0.30000000000000004", "optimizer.weight_decay=4.9e-324",
       "cluster.start_timeout=0.1", "wire.chunk=320"},
      {"data={format: idx, path: \"/odd: name/#1 \\\" \\\\ {é}\\t\"}",
       "data.normalize={mean: [0.1, -2e-9], std: [1e300, 0.3]}"},
      {"optimizer.schedule={name: cosine, warmup: {samples: 7}, until: {steps: 100}}"},
      {"optimizer.schedule={name: step, every: {epochs: 0.1}, gamma: 0.5}", "name=null-1",
       "cluster.address=\"[::1]:0\""},
      {"optimizer={name: adamw, betas: [0.5, 0.25], groups: [{match: \"*\", learning_rate: 0}]}"},
      {"optimizer=rmsprop", "optimizer.eps=1e-30"},
      {"name=\"true\""},
      {"name=\"1e3\""},
  };
  for (const std::vector<std::string>& overrides : kOverrides) {
    const proto::Job job = LoadMinimal(overrides);
    const std::string yaml = ResolvedYaml(job);
    const absl::StatusOr<proto::Job> again = Load(yaml);
    RUBATO_ASSERT_OK(again) << yaml;
    EXPECT_TRUE(MessageDifferencer::Equals(job, *again)) << yaml;
    EXPECT_EQ(ResolvedYaml(*again), yaml);
  }
}

TEST(ResolvedYamlTest, FillsInTheDefaultsOfAJobMadeByHand) {
  proto::Job job;
  job.set_version(1);
  job.set_name("minimal");
  job.mutable_data()->set_format(proto::Data::FORMAT_GLYPHS);
  job.mutable_model()->add_layers()->mutable_flatten();
  job.mutable_model()->add_layers()->mutable_linear()->set_out_features(10);
  job.mutable_train()->set_batch_size(64);
  job.mutable_train()->mutable_until()->set_epochs(3);
  EXPECT_EQ(ResolvedYaml(job), ResolvedYaml(LoadMinimal()));
  EXPECT_EQ(JobDigest(job), JobDigest(LoadMinimal()));
}

TEST(ResolvedYamlTest, AScheduleOfModesIsReadBack) {
  const proto::Job job = LoadMinimal(
      {"consistency={schedule: [{mode: sync, until: {epochs: 1}}, {mode: bounded, staleness: 2, "
       "until: {samples: 100000}}, {mode: async}]}"});
  ASSERT_EQ(job.consistency().schedule_size(), 3);
  EXPECT_EQ(job.consistency().schedule(1).mode().mode(), proto::Mode::NAME_BOUNDED);
  EXPECT_EQ(job.consistency().schedule(1).mode().staleness(), 2);
  EXPECT_FALSE(job.consistency().has_mode());
  const std::string file = testing::TempDir() + "/resolved.yaml";
  std::ofstream(file) << ResolvedYaml(job);
  const absl::StatusOr<proto::Job> again = LoadJob(file);
  RUBATO_ASSERT_OK(again);
  EXPECT_EQ(JobDigest(*again), JobDigest(job));
}

TEST(JobDigestTest, ChangesWithWhatTheProcessesMustAgreeOn) {
  const std::string digest = JobDigest(LoadMinimal());
  EXPECT_EQ(digest.size(), 64u);
  for (const char* assignment : {"name=other",
                                 "seed=1",
                                 "cluster.servers=2",
                                 "cluster.workers=2",
                                 "cluster.workers={start: 1, max: 2}",
                                 "device.isa=avx2",
                                 "device.precision=bf16",
                                 "data.seed=1",
                                 "data.train_size=100",
                                 "data.normalize={mean: [0], std: [1]}",
                                 "model.layers=[relu]",
                                 "optimizer.learning_rate=0.010000000000000002",
                                 "optimizer.learning_rate_parity=false",
                                 "optimizer.schedule=cosine",
                                 "optimizer=adam",
                                 "optimizer.groups=[{match: \"*\"}]",
                                 "consistency=async",
                                 "wire.chunk=64",
                                 "train.batch_size=128",
                                 "train.micro_batches=2",
                                 "train.until.epochs=4",
                                 "train.until.steps=3"}) {
    EXPECT_NE(JobDigest(LoadMinimal({assignment})), digest) << assignment;
  }
}

TEST(JobDigestTest, LeavesOutWhatMayDifferFromProcessToProcess) {
  const std::string digest = JobDigest(LoadMinimal());
  for (const char* assignment :
       {"cluster.address=other:1", "cluster.start_timeout=1s", "device=cpu", "device=cuda",
        "device.threads=1", "metrics.every={epochs: 1}", "log=error",
        // Other words for the same.
        "cluster.workers={max: 1}", "optimizer=sgd", "wire.chunk=262144",
        "train.until.epochs=3.0"}) {
    EXPECT_EQ(JobDigest(LoadMinimal({assignment})), digest) << assignment;
  }
  EXPECT_EQ(JobDigest(LoadMinimal({"data={format: idx, path: /a}"})),
            JobDigest(LoadMinimal({"data={format: idx, path: /b}"})));
}

TEST(ConfigsTest, AllAreLoaded) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("configs")) {
    if (entry.path().extension() != ".yaml") continue;
    ++count;
    const absl::StatusOr<proto::Job> job = LoadJob(entry.path());
    RUBATO_ASSERT_OK(job) << entry.path();
    EXPECT_EQ(job->name(), entry.path().stem());
  }
  EXPECT_GE(count, 2);
}

}  // namespace
}  // namespace rubato
