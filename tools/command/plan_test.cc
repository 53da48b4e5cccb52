#include "tools/command/plan.h"

#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_matchers.h"
#include "common/job/job.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// 784-256-10 in blocks of 256 KiB: 203,530 values in 4 blocks.
proto::Job MakeJob() {
  proto::Job job;
  const bool parsed = google::protobuf::TextFormat::ParseFromString(R"(
    version: 1
    name: "test"
    cluster { servers: 2 workers { start: 3 } }
    data { format: FORMAT_GLYPHS train_size: 6000 test_size: 1000 }
    model {
      layers { flatten {} }
      layers { linear { out_features: 256 } }
      layers { relu {} }
      layers { linear { out_features: 10 } }
    }
    wire { chunk: 262144 }
    train { batch_size: 64 micro_batches: 8 until { epochs: 2.5 } })",
                                                                    &job);
  EXPECT_TRUE(parsed);
  return job;
}

TEST(PlanTest, DryRunTellsParametersShardsAndSteps) {
  const auto plan = MakePlan(MakeJob());
  RUBATO_ASSERT_OK(plan);
  const std::string text = DryRunText(*plan);
  EXPECT_THAT(text, StartsWith(ResolvedYaml(plan->job)));
  EXPECT_THAT(text, HasSubstr("#  parameter       shape  values   bytes\n"
                              "#  1.weight   (256, 784)  200704  802816\n"
                              "#  1.bias          (256)     256    1024\n"
                              "#  3.weight    (10, 256)    2560   10240\n"
                              "#  3.bias           (10)      10      40\n"
                              "#  total                  203530  814120\n"));
  EXPECT_THAT(text, HasSubstr("#  shard  blocks            values   bytes\n"
                              "#  0      [0, 2)       [0, 131072)  524288\n"
                              "#  1      [2, 4)  [131072, 203530)  289832\n"));
  EXPECT_THAT(text,
              HasSubstr("#  4 blocks of 65536 values, 262144 bytes\n"
                        "#  on the wire: a gradient sum takes 814120 bytes, the parameters 814120\n"
                        "#  data: 6000 training samples, 1000 test samples\n"
                        "#  step: 64 samples, 8 micro-batches of 8\n"
                        "#  async contribution: 16 samples, 2 micro-batches of 8\n"));
  const auto wire_of = [](proto::Push::Codec push) {
    proto::Job job = MakeJob();
    job.mutable_wire()->mutable_push()->set_codec(push);
    job.mutable_wire()->set_pull(proto::Wire::PULL_BF16);
    return DryRunText(*MakePlan(job));
  };
  // A scale for each block; 1 % of 65536 and of 6922 values, with an index each and a count.
  EXPECT_THAT(wire_of(proto::Push::CODEC_INT8),
              HasSubstr("sum takes 203546 bytes, the parameters 407060\n"));
  EXPECT_THAT(wire_of(proto::Push::CODEC_TOPK),
              HasSubstr(absl::StrCat("sum takes ", 4 * 4 + 8 * (3 * 655 + 69), " bytes, ")));
  // Training, of 8: the most at a time are the 256 values, their gradient, and that of the 10
  // outputs. Tests, of 250: the values and the outputs, whose number is rounded up to a multiple
  // of 16.
  EXPECT_THAT(text, HasSubstr(absl::StrCat("#  memory of a worker's activations and gradients: ",
                                           4 * 8 * (2 * 256 + 10), " bytes in training, ",
                                           4 * (250 * 256 + 2512), " in tests\n")));
  // Of shard 1: 22 MiB, its values and three buffers for sums that wait (of three workers, of which
  // two send two parts each), two blocks' ledgers, three streams and the gradients that three
  // workers lend; a checkpoint's version, without slots.
  EXPECT_THAT(text,
              HasSubstr(absl::StrFormat("#  server 1%22.1f MB%7.1f MB\n",
                                        1e-6 * (289832.0 * 7 + 2 * 1800 + 46.0 * (1 << 20)),
                                        1e-6 * (289832.0 * 8 + 2 * 1800 + 46.0 * (1 << 20)))));
}

TEST(PlanTest, DryRunWarnsWhereMostServersHoldNothing) {
  proto::Job job = MakeJob();
  job.mutable_cluster()->set_servers(8);
  EXPECT_THAT(DryRunText(*MakePlan(job)), Not(HasSubstr("hold no parameters")));
  job.mutable_cluster()->set_servers(9);
  EXPECT_THAT(
      DryRunText(*MakePlan(job)),
      HasSubstr("#  warning: 5 of 9 servers hold no parameters, which are 4 blocks of 65536 "
                "values (cluster.servers, wire.chunk)\n"));
}

TEST(PlanTest, DryRunWarnsWhereWorkersHaveNothingToCompute) {
  proto::Job job = MakeJob();
  job.mutable_cluster()->mutable_workers()->set_start(8);
  EXPECT_THAT(DryRunText(*MakePlan(job)), Not(HasSubstr("nothing to compute")));
  job.mutable_cluster()->mutable_workers()->set_start(10);
  const std::string warning =
      "#  warning: 2 of 10 workers have nothing to compute: train.micro_batches is 8\n";
  EXPECT_THAT(DryRunText(*MakePlan(job)), HasSubstr(warning));
  proto::Job script = job;
  script.clear_data();
  script.mutable_model()->set_preset(proto::Model::PRESET_SCRIPT);
  script.add_script("true");
  EXPECT_THAT(DryRunText(*MakePlan(script)), HasSubstr(warning));
  job.mutable_consistency()->add_schedule()->mutable_mode()->set_mode(proto::Mode::NAME_ASYNC);
  EXPECT_THAT(DryRunText(*MakePlan(job)), Not(HasSubstr("nothing to compute")));
}

TEST(PlanTest, DryRunWarnsWhereNoStepIsAsLargeAsTheJobSays) {
  proto::Job job = MakeJob();
  job.mutable_train()->set_batch_size(6000);
  job.mutable_train()->set_micro_batches(4);
  EXPECT_THAT(DryRunText(*MakePlan(job)), Not(HasSubstr("warning"))) << "each step is an epoch";
  job.mutable_train()->set_batch_size(60000);
  EXPECT_THAT(DryRunText(*MakePlan(job)),
              HasSubstr("#  warning: train.batch_size is 60000, and an epoch has 6000 samples: no "
                        "step takes more than these\n"));
  // On arrival a worker's share is what counts.
  job.mutable_cluster()->mutable_workers()->set_start(2);
  job.mutable_consistency()->mutable_mode()->set_mode(proto::Mode::NAME_ASYNC);
  EXPECT_THAT(DryRunText(*MakePlan(job)),
              HasSubstr("#  warning: train.batch_size is 60000, of which a contribution has 30000, "
                        "and an epoch has 6000 samples: no contribution takes more than these\n"));
  job.mutable_train()->set_batch_size(12000);
  EXPECT_THAT(DryRunText(*MakePlan(job)), Not(HasSubstr("takes more than")));
}

TEST(PlanTest, DryRunTellsWhatAGroupChanges) {
  proto::Job job = MakeJob();
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
      R"(name: NAME_ADAMW learning_rate: 0.001 weight_decay: 0.01 betas: 0.9 betas: 0.999
         groups { match: "3.*" learning_rate: 0 }
         groups { match: "*.bias" weight_decay: 0 }
         groups { match: "2.*" weight_decay: 0 })",
      job.mutable_optimizer()));
  const auto plan = MakePlan(job);
  RUBATO_ASSERT_OK(plan);
  EXPECT_THAT(
      DryRunText(*plan),
      HasSubstr("#  parameter       shape  values   bytes  group  learning_rate  weight_decay\n"
                "#  1.weight   (256, 784)  200704  802816      -          0.001          0.01\n"
                "#  1.bias          (256)     256    1024      1          0.001             0\n"
                "#  3.weight    (10, 256)    2560   10240      0         frozen             -\n"
                "#  3.bias           (10)      10      40      0         frozen             -\n"
                "#  total                  203530  814120\n"
                "#  warning: optimizer.groups[2] changes nothing: no parameter matches \"2.*\"\n"
                "#\n"));
}

TEST(PlanTest, DryRunTellsInputsAndClassesInOrder) {
  const std::string path = testing::TempDir() + "/visits.csv";
  std::ofstream(path) << "income,city,age,visits,class\n1,b,2,3,yes\n2,a c,2,3,no\n3,b,2,3,no\n";
  proto::Job job = MakeJob();
  job.clear_data();
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
      absl::StrCat(R"(format: FORMAT_CSV target: "class" separator: "," header: true
                      categorical: "city" numeric: ["visits", "age", "income"]
                      path: ")",
                   path, R"(" test_path: ")", path, "\""),
      job.mutable_data()));
  job.mutable_model()->mutable_layers()->DeleteSubrange(0, 1);  // no flatten
  job.mutable_model()->mutable_layers(2)->mutable_linear()->set_out_features(2);
  auto plan = MakePlan(job);
  RUBATO_ASSERT_OK(plan);
  EXPECT_THAT(DryRunText(*plan),
              HasSubstr("#  5 inputs, in this order: visits, age, income, city=a c, city=b\n"
                        "#  2 classes, from 0 on: no, yes\n"
                        "#  step: "));
  plan->columns = {"a, b", ""};
  plan->job.mutable_loss()->add_class_weights(1);
  plan->job.mutable_loss()->add_class_weights(0.5);
  plan->job.mutable_loss()->set_ignore_index(0);
  EXPECT_THAT(DryRunText(*plan),
              HasSubstr("#  2 inputs, in this order: \"a, b\", \"\"\n"
                        "#  2 classes, from 0 on: no (ignored), yes (weight 0.5)\n"));
  // So that who predicts with the model elsewhere can do as training did.
  job.mutable_data()->mutable_normalize()->set_by(proto::Normalize::BY_AUTO);
  plan = MakePlan(job);
  RUBATO_ASSERT_OK(plan);
  EXPECT_THAT(DryRunText(*plan), HasSubstr("city=b\n"
                                           "#  mean, by normalize: auto: [3, 2, 2]\n"
                                           "#  std, by normalize: auto: [1, 1, 0.816496611]\n"
                                           "#  2 classes"));
  plan->notes = {"warning: so and so"};
  plan->columns.assign(1001, "a\nname");
  const std::string many = DryRunText(*plan);
  EXPECT_THAT(many, HasSubstr("#  1001 inputs, in this order: a\\nname, a\\nname, "));
  EXPECT_THAT(many, HasSubstr("a\\nname, ...\n#  mean, "));
  EXPECT_THAT(many, HasSubstr("#  warning: so and so\n"));
}

TEST(PlanTest, CountsWhatIsKeptForValidation) {
  proto::Job job = MakeJob();
  job.mutable_data()->mutable_validation()->set_fraction(0.1);
  const auto plan = MakePlan(job);
  RUBATO_ASSERT_OK(plan);
  EXPECT_EQ(TotalSamples(*plan), 2.5 * 5400);
  EXPECT_THAT(DryRunText(*plan), HasSubstr("#  data: 5400 training samples, 600 for validation, "
                                           "1000 test samples\n"));
}

TEST(PlanTest, ContributionHasAtLeastOneMicroBatchAndShardsMayBeEmpty) {
  proto::Job job = MakeJob();
  job.mutable_cluster()->mutable_workers()->set_start(20);
  job.mutable_cluster()->set_servers(5);
  const auto plan = MakePlan(job);
  RUBATO_ASSERT_OK(plan);
  EXPECT_THAT(DryRunText(*plan),
              HasSubstr("#  async contribution: 8 samples, 1 micro-batch of 8\n"));
  EXPECT_THAT(DryRunText(*plan), HasSubstr("none              none       0\n"));
}

TEST(PlanTest, WarnsOfAModeThatNeverBegins) {
  proto::Job job = MakeJob();
  proto::Stage* first = job.mutable_consistency()->add_schedule();
  first->mutable_mode()->set_mode(proto::Mode::NAME_SYNC);
  first->mutable_until()->set_epochs(2);
  job.mutable_consistency()->add_schedule()->mutable_mode()->set_mode(proto::Mode::NAME_ASYNC);
  EXPECT_THAT(MakePlan(job)->notes, testing::IsEmpty());
  first->mutable_until()->set_epochs(2.5);
  const auto plan = MakePlan(job);
  EXPECT_THAT(plan->notes,
              testing::ElementsAre("warning: consistency.schedule[1], async, never begins: "
                                   "train.until comes to 15000 samples, and sync goes on until "
                                   "then"));
  EXPECT_THAT(DryRunText(*plan), HasSubstr("#  warning: consistency.schedule[1], async"));
  job.mutable_train()->mutable_until()->set_time(1);
  EXPECT_THAT(MakePlan(job)->notes, testing::IsEmpty());
}

TEST(PlanTest, WarnsOfAPrecisionThatTheCpuDoesNotHave) {
  proto::Job job = MakeJob();
  job.mutable_device()->set_type(proto::Device::TYPE_CPU);
  EXPECT_EQ(IgnoredPrecision(job), "");
  job.mutable_device()->set_precision(proto::Device::PRECISION_BF16);
  EXPECT_EQ(IgnoredPrecision(job),
            "device.precision: bf16 is for GPUs: on the CPU workers compute in float32");
  job.mutable_device()->set_type(proto::Device::TYPE_CUDA);
  EXPECT_EQ(IgnoredPrecision(job), "");
}

TEST(PlanTest, WarningsAreThoseOfADryRun) {
  proto::Job job = MakeJob();
  EXPECT_THAT(WarningsOf(*MakePlan(job)), testing::IsEmpty());
  job.mutable_cluster()->mutable_workers()->set_start(20);
  job.mutable_cluster()->set_servers(20);
  job.mutable_train()->set_batch_size(8000);
  job.mutable_optimizer()->add_groups()->set_match("nothing");
  const auto plan = MakePlan(job);
  RUBATO_ASSERT_OK(plan);
  const std::vector<std::string> warnings = WarningsOf(*plan);
  EXPECT_EQ(warnings.size(), 4u);
  for (const std::string& warning : warnings) {
    EXPECT_THAT(DryRunText(*plan), HasSubstr("#  warning: " + warning + "\n"));
  }
}

TEST(PlanTest, TotalSamplesFollowsTheUnitOfUntil) {
  proto::Job job = MakeJob();
  EXPECT_EQ(TotalSamples(*MakePlan(job)), 15000);
  job.mutable_train()->mutable_until()->set_steps(10);
  EXPECT_EQ(TotalSamples(*MakePlan(job)), 640);
  job.mutable_train()->mutable_until()->set_samples(7);
  EXPECT_EQ(TotalSamples(*MakePlan(job)), 7);
}

TEST(PlanTest, OfDrawnDataOneDrawingTellsNoMeans) {
  proto::Job job = MakeJob();
  job.mutable_data()->mutable_normalize()->set_by(proto::Normalize::BY_AUTO);
  const auto plan = MakePlan(job);
  RUBATO_ASSERT_OK(plan);
  EXPECT_THAT(DryRunText(*plan), Not(HasSubstr("normalize: auto:")));
}

TEST(PlanTest, MistakesInDataAndModelAreErrors) {
  proto::Job few = MakeJob();
  few.mutable_data()->mutable_validation()->set_fraction(1e-6);
  EXPECT_THAT(MakePlan(few), IsError(absl::StatusCode::kInvalidArgument,
                                     HasSubstr("data.validation.fraction: found 1e-06, which is 0 "
                                               "of 6000 examples")));
  proto::Job steep = MakeJob();
  steep.mutable_optimizer()->set_learning_rate(1e39);
  EXPECT_THAT(MakePlan(steep), IsError(absl::StatusCode::kInvalidArgument,
                                       HasSubstr("optimizer.learning_rate: found 1e+39")));
  proto::Job unfit = MakeJob();
  unfit.mutable_model()->mutable_layers()->DeleteSubrange(0, 1);  // no flatten
  EXPECT_THAT(MakePlan(unfit), IsError(absl::StatusCode::kInvalidArgument, HasSubstr("linear")));
  proto::Job missing = MakeJob();
  missing.mutable_data()->set_format(proto::Data::FORMAT_IDX);
  missing.mutable_data()->set_path("/no/such/folder");
  EXPECT_THAT(MakePlan(missing),
              IsError(absl::StatusCode::kNotFound, HasSubstr("/no/such/folder")));
  proto::Job channels = MakeJob();
  channels.mutable_data()->mutable_normalize()->add_mean(0);
  EXPECT_THAT(MakePlan(channels),
              IsError(absl::StatusCode::kInvalidArgument, HasSubstr("data.normalize")));
}

TEST(PlanTest, RefusesAScriptThatIsNotThere) {
  const std::string there = testing::TempDir() + "/there.py";
  std::ofstream(there) << "pass\n";
  const auto plan_of = [](const std::vector<std::string>& script) {
    proto::Job job;
    job.mutable_model()->set_preset(proto::Model::PRESET_SCRIPT);
    for (const std::string& word : script) job.add_script(word);
    return MakePlan(job).status();
  };
  for (const std::vector<std::string>& script : std::vector<std::vector<std::string>>{
           {"python3", there, "absent.py"},
           {"python3", "-u", "-W", "ignore", "-bX", "dev", there},
           {"python3", "-c", "pass"},
           {"python3", "-um", "package"},
           {"python3", "--check-hash-based-pycs", "always", "absent.py"},
           {"sh", "-c", "exec python3 absent.py"}}) {
    EXPECT_TRUE(plan_of(script).ok()) << script[1];
  }
  const auto is_missing = [](const std::string& path) {
    return IsError(absl::StatusCode::kNotFound,
                   HasSubstr(absl::StrCat("script: found no file ", path)));
  };
  EXPECT_THAT(
      plan_of({"python3", "absent.py"}),
      is_missing("absent.py (`script` is relative to the folder in which `rubato train` runs, /"));
  EXPECT_THAT(plan_of({"/usr/bin/python3", "-u", "-X", "dev", "absent.py"}),
              is_missing("absent.py"));
  EXPECT_THAT(plan_of({"./absent", "there.py"}), is_missing("./absent"));
  EXPECT_THAT(plan_of({"python3", "/absent.py"}), is_missing("/absent.py"));
}

}  // namespace
}  // namespace rubato
