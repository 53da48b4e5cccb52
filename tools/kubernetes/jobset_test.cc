#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/kubernetes/manifests.h"
#include "tools/kubernetes/references.h"
#include "tools/kubernetes/test_models.h"

namespace rubato::kubernetes {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

Model MadeAs(Format format, bool is_dedicated = false) {
  Options options = MakeOptions();
  options.format = format;
  proto::Job job = MakeJob();
  job.mutable_cluster()->set_dedicated_coordinator(is_dedicated);
  return Made(job, options);
}

// The `spec` of the JobSet that is rendered, or that a TrainJob makes.
Json SetSpec(const Model& model) {
  const Json spec = Manifests(model).back()["spec"];
  return model.options.format == Format::kJobSet ? spec : spec["template"]["spec"];
}

TEST(JobSetTest, RefersToWhatIsThereAndNotToOther) {
  for (const Format format : {Format::kJobSet, Format::kTrainingRuntime}) {
    const Model model = MadeAs(format);
    std::vector<Json> whole = Manifests(model);
    whole.push_back(FilesPod(model));
    ASSERT_THAT(References::Broken(whole, kGiven), IsEmpty());
    const size_t set = whole.size() - 2;
    const std::string spec = format == Format::kJobSet ? "/spec" : "/spec/template/spec";
    const std::vector<std::string> pointers = {
        "/successPolicy/targetReplicatedJobs/0",
        "/failurePolicy/rules/0/targetReplicatedJobs/0",
        "/failurePolicy/rules/1/targetReplicatedJobs/1",
        "/replicatedJobs/0/template/spec/podFailurePolicy/rules/0/onExitCodes/containerName",
        "/replicatedJobs/0/template/spec/template/spec/volumes/0/configMap/name",
        "/replicatedJobs/2/template/spec/template/metadata/labels/app.kubernetes.io~1component"};
    for (const std::string& pointer : pointers) {
      std::vector<Json> documents = whole;
      documents[set].at(Json::json_pointer(spec + pointer)) = "other";
      EXPECT_THAT(References::Broken(documents, kGiven), Not(IsEmpty())) << pointer;
    }
    std::vector<Json> documents = whole;
    documents[2]["spec"]["podSelector"].erase("matchLabels");
    EXPECT_THAT(References::Broken(documents, kGiven), Not(IsEmpty()));
  }
}

// JobSet calls a pod SET-GROUP-JOB-POD, and its Service as itself.
TEST(JobSetTest, AddressesAreTheNamesThatItGivesItsPods) {
  for (const bool is_dedicated : {false, true}) {
    const Model model = MadeAs(Format::kJobSet, is_dedicated);
    const Json set = Manifests(model).back();
    const std::string name = set["metadata"]["name"];
    const Json& jobs = set["spec"]["replicatedJobs"];
    const auto host = [&](int group, const std::string& pod) {
      return absl::StrCat(name, "-", std::string(jobs[group]["name"]), "-0-", pod, ".", name,
                          ":29500");
    };
    EXPECT_EQ(model.job.cluster().address(), host(0, "0"));
    const auto arguments = [&](int group) {
      return ContainerOf(jobs[group]["template"])["args"].dump();
    };
    EXPECT_THAT(arguments(0), HasSubstr("\"--advertise\",\"" + host(0, "0") + "\""));
    EXPECT_THAT(arguments(1),
                HasSubstr("\"--advertise\",\"" + host(1, "$(JOB_COMPLETION_INDEX)") + "\""));
    EXPECT_EQ(set["spec"]["network"]["enableDNSHostnames"], true);
    EXPECT_EQ(set["spec"]["network"]["publishNotReadyAddresses"], true);
    EXPECT_FALSE(set["spec"]["network"].contains("subdomain"));
    for (const Json& job : jobs) {
      EXPECT_FALSE(job.contains("dependsOn"));
      EXPECT_EQ(job["template"]["spec"]["completionMode"], "Indexed");
      EXPECT_FALSE(job["template"]["spec"]["template"]["spec"].contains("hostname"));
      EXPECT_FALSE(job["template"]["spec"]["template"]["spec"].contains("subdomain"));
    }
  }
}

TEST(JobSetTest, EndsAndFailsAsTheThreeJobsDo) {
  for (const Format format : {Format::kJobSet, Format::kTrainingRuntime}) {
    const Json spec = SetSpec(MadeAs(format));
    EXPECT_EQ(spec["successPolicy"]["operator"], "All");
    EXPECT_EQ(spec["successPolicy"]["targetReplicatedJobs"], Json::array({"shard-0"}));
    const Json& rules = spec["failurePolicy"]["rules"];
    EXPECT_EQ(rules[1]["action"], "FailJobSet");
    EXPECT_EQ(rules[1]["targetReplicatedJobs"], Json::array({"shard-0", "servers"}));
    for (int group = 0; group < 3; ++group) {
      const Json& job = spec["replicatedJobs"][group]["template"]["spec"];
      const Json& rule = job["podFailurePolicy"]["rules"][0];
      EXPECT_EQ(rule["action"], group == 2 ? "FailIndex" : "FailJob");
      EXPECT_EQ(rule["onExitCodes"]["values"], Json::array({2}));
      EXPECT_FALSE(job.contains("ttlSecondsAfterFinished"));
    }
  }
}

TEST(JobSetTest, AQueueIsALabelOfTheSetAlone) {
  Options options = MakeOptions();
  options.format = Format::kJobSet;
  options.queue = "team-a";
  for (const Json& document : Manifests(Made(MakeJob(), options))) {
    EXPECT_EQ(document["metadata"]["labels"].contains("kueue.x-k8s.io/queue-name"),
              document["kind"] == "JobSet");
  }
}

TEST(TrainingRuntimeTest, AddressesFollowTheNameOfTheTrainJob) {
  const Model model = MadeAs(Format::kTrainingRuntime);
  const Json spec = SetSpec(model);
  for (const Json& job : spec["replicatedJobs"]) {
    const Json environment = ContainerOf(job["template"])["env"];
    size_t name = 0, address = 0;
    for (size_t i = 0; i < environment.size(); ++i) {
      if (environment[i]["name"] == "JOBSET_NAME") name = i;
      if (environment[i]["name"] == "RUBATO__CLUSTER__ADDRESS") address = i;
    }
    EXPECT_LT(name, address);  // a variable is known to those behind it
    EXPECT_EQ(environment[address]["value"], "$(JOBSET_NAME)-shard-0-0-0.$(JOBSET_NAME):29500");
    EXPECT_EQ(environment[name]["valueFrom"]["fieldRef"]["fieldPath"],
              "metadata.labels['jobset.sigs.k8s.io/jobset-name']");
  }
  EXPECT_EQ(spec["replicatedJobs"][2]["name"], "node");
  EXPECT_EQ(ContainerOf(spec["replicatedJobs"][2]["template"])["name"], "node");
  const Json train_job = TrainJobDocument(model);
  EXPECT_EQ(train_job["spec"]["runtimeRef"]["name"], model.base);
  EXPECT_EQ(train_job["spec"]["trainer"]["numNodes"], 4);
}

}  // namespace
}  // namespace rubato::kubernetes
