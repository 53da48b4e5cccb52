#include "tools/kubernetes/model.h"

#include <functional>
#include <string>
#include <vector>

#include "common/job/job.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/kubernetes/test_models.h"

namespace rubato::kubernetes {
namespace {

using ::testing::HasSubstr;

TEST(ModelTest, TheJobIsTheOneThatRanElsewhere) {
  const proto::Job job = MakeJob();
  const Model model = Made(job);
  EXPECT_EQ(model.job_digest, JobDigest(job));
  EXPECT_EQ(model.job.cluster().start_timeout(), 1800);
  proto::Job patient = job;
  patient.mutable_cluster()->set_start_timeout(7200);
  EXPECT_EQ(Made(patient).job.cluster().start_timeout(), 7200);
  EXPECT_EQ(Named(model, "ConfigMap", "")["data"]["job.yaml"], ResolvedYaml(model.job));
}

TEST(ModelTest, WhatIsRenderedOtherwiseHasOtherNames) {
  Options other = MakeOptions();
  other.image = "example.org/rubato:2";
  proto::Job job = MakeJob();
  job.set_seed(7);
  EXPECT_EQ(Made(MakeJob()).base, Made(MakeJob()).base);
  EXPECT_NE(Made(MakeJob(), other).base, Made(MakeJob()).base);
  EXPECT_NE(Made(job).base, Made(MakeJob()).base);
  EXPECT_THAT(Made(job).base, ::testing::MatchesRegex("try-it-out-[0-9a-f]{8}"));
}

TEST(ModelTest, DataAreReadFromTheClaimByTheirLastName) {
  proto::Job job = MakeJob();
  job.mutable_data()->set_path("/home/me/agaricus.txt.train");
  job.mutable_data()->set_test_path("/home/me/agaricus.txt.test");
  Options options = MakeOptions();
  options.data_claim = "datasets";
  Model model = Made(job, options);
  EXPECT_EQ(model.job.data().path(), "/data/agaricus.txt.train");
  EXPECT_EQ(model.job.data().test_path(), "/data/agaricus.txt.test");
  options.data_claim = "datasets:/mnt";
  options.data_path = "/mnt/a/train";
  model = Made(job, options);
  EXPECT_EQ(model.job.data().path(), "/mnt/a/train");
  EXPECT_EQ(model.job.data().test_path(), "/mnt/a/agaricus.txt.test");
  const Json pod = Named(model, "Job", "-workers")["spec"]["template"]["spec"];
  EXPECT_EQ(pod["volumes"][2]["persistentVolumeClaim"]["readOnly"], true);
  EXPECT_EQ(pod["containers"][0]["volumeMounts"][2],
            Json({{"name", "data"}, {"mountPath", "/mnt"}, {"readOnly", true}}));
}

struct Mistake {
  std::function<void(proto::Job*, Options*)> make;
  std::string sentence;
};

TEST(ModelTest, AnImageIsNamedAsContainerEnginesReadIt) {
  const auto model = [](const std::string& image) {
    Options options = MakeOptions();
    options.image = image;
    return MakeModel(MakeJob(), options, MakeSizes());
  };
  for (const char* image :
       {"rubato", "rubato:0.1.0", "team/rubato__x-y:Tag_1", "example.org/rubato",
        "Host.ORG:5000/a/b", "localhost/a", "localhost:5000/a:1", "[fd00::1]:5000/a",
        "a@sha256:0aF1", "a.b:1@sha256:0a"}) {
    RUBATO_EXPECT_OK(model(image)) << image;
  }
  for (const char* image : {"Rubato", "example.org/Rubato:1", "-a", "/a", "a/", "a//b", "a:",
                            "a:b:c", "a@", "a_", "a/.b", "a b", "https://example.org/a", "a:1\n"}) {
    EXPECT_THAT(model(image),
                IsError(absl::StatusCode::kInvalidArgument, HasSubstr("in lower-case letters")))
        << image;
  }
}

TEST(ModelTest, MistakesAreOneSentence) {
  const std::vector<Mistake> mistakes = {
      {[](proto::Job*, Options* o) { o->image = ""; }, "--image is missing"},
      {[](proto::Job*, Options* o) { o->image = "a b"; }, "--image: found \"a b\""},
      {[](proto::Job*, Options* o) { o->worker_image = "a b"; }, "--worker-image: found \"a b\""},
      {[](proto::Job* j, Options*) { j->mutable_model()->set_preset(proto::Model::PRESET_SCRIPT); },
       "model: found script, and no `script`"},
      {[](proto::Job*, Options* o) { o->gpus = -1; }, "--gpus: found -1, expected 0 or 1"},
      {[](proto::Job*, Options* o) { o->gpus = 2; }, "--gpus: found 2, expected 0 or 1"},
      {[](proto::Job* j, Options*) { j->mutable_device()->set_type(proto::Device::TYPE_CUDA); },
       "device: found cuda"},
      {[](proto::Job* j, Options*) {
         j->mutable_checkpoint()->set_resume(proto::Checkpoint::RESUME_AUTO);
       },
       "checkpoint.resume: expected with --runs-claim alone"},
      {[](proto::Job*, Options* o) { o->resume = "required"; },
       "--resume: expected with --runs-claim alone"},
      {[](proto::Job*, Options* o) {
         o->resume = "here/a";
         o->runs_claim = "mine";
       },
       "--resume: found here/a, expected auto"},
      {[](proto::Job*, Options* o) {
         o->resume = "runs/\xe9";
         o->runs_claim = "mine";
       },
       "--resume: found bytes that are not UTF-8 text"},
      {[](proto::Job* j, Options*) { j->mutable_data()->set_path("/here"); },
       "data.path: found /here, a path of this machine"},
      {[](proto::Job*, Options* o) { o->data_claim = "x"; }, "--data-claim: the job draws"},
      {[](proto::Job*, Options* o) { o->data_command = "echo \xe9"; },
       "--data-command: found bytes that are not UTF-8 text"},
      {[](proto::Job* job, Options*) { job->set_name("\xe9"); },
       "the job: found bytes that are not UTF-8 text"},
      {[](proto::Job* job, Options* o) {
         job->mutable_data()->set_path("/d");
         o->data_claim = "x:/tmp/";
       },
       "--data-claim: found x:/tmp/, and /tmp is a folder that pods have already"},
      {[](proto::Job* j, Options* o) {
         j->mutable_data()->set_path("/here");
         o->data_claim = "x:data";
       },
       "--data-claim: found x:data, expected behind the colon the folder"},
      {[](proto::Job* j, Options*) { j->set_name(std::string(50, 'a')); },
       "name: found 50 characters, expected at most 42"},
      {[](proto::Job* j, Options*) { j->set_name("1st"); }, "name: found 1st, expected a letter"},
      {[](proto::Job*, Options* o) { o->name = "Big"; }, "--name: found Big"},
      {[](proto::Job*, Options* o) { o->runs_claim = "a_b"; }, "--runs-claim: found a_b"},
  };
  for (const Mistake& mistake : mistakes) {
    proto::Job job = MakeJob();
    Options options = MakeOptions();
    mistake.make(&job, &options);
    EXPECT_THAT(MakeModel(job, options, MakeSizes()),
                IsError(absl::StatusCode::kInvalidArgument, HasSubstr(mistake.sentence)))
        << mistake.sentence;
  }
}

}  // namespace
}  // namespace rubato::kubernetes
