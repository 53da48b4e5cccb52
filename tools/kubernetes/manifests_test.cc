#include "tools/kubernetes/manifests.h"

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_matchers.h"
#include "common/job/job.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/kubernetes/head.h"
#include "tools/kubernetes/references.h"
#include "tools/kubernetes/yaml_text.h"
#include "yaml-cpp/yaml.h"

namespace rubato::kubernetes {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

proto::Job MakeJob(int servers = 3, int workers = 4) {
  proto::Job job;
  job.set_version(1);
  job.set_name("Try_it.out");
  job.mutable_cluster()->set_servers(servers);
  job.mutable_cluster()->mutable_workers()->set_start(workers);
  job.mutable_cluster()->mutable_workers()->set_min(2);
  job.mutable_cluster()->mutable_workers()->set_max(workers + 2);
  // As of a job that has been loaded.
  job.mutable_device()->set_threads(1);
  job.mutable_wire()->mutable_push();
  job.mutable_data();
  job.mutable_model();
  return job;
}

Options MakeOptions() {
  Options options;
  options.image = "example.org/rubato:1";
  return options;
}

Sizes MakeSizes() {
  const Memory memory{200 << 20, 300 << 20};
  return Sizes{memory, memory, memory, int64_t{1} << 30};
}

Model Made(const proto::Job& job, const Options& options = MakeOptions()) {
  const absl::StatusOr<Model> model = MakeModel(job, options, MakeSizes());
  EXPECT_THAT(model, IsOk());
  return model.ok() ? *model : Model();
}

Json Named(const Model& model, const std::string& kind, const std::string& behind) {
  for (const Json& document : Manifests(model)) {
    if (document["kind"] == kind && document["metadata"]["name"] == model.base + behind) {
      return document;
    }
  }
  return Json();
}

Json ContainerOf(const Json& job) { return job["spec"]["template"]["spec"]["containers"][0]; }

const std::set<std::string> kGiven = {"Secret/try-it-out-server", "Secret/try-it-out-worker",
                                      "PersistentVolumeClaim/datasets"};

std::vector<Model> Variants() {
  std::vector<Model> models = {Made(MakeJob()), Made(MakeJob(1, 1))};
  proto::Job job = MakeJob();
  job.mutable_cluster()->set_dedicated_coordinator(true);
  job.mutable_security()->set_mode(proto::Security::MODE_MTLS);
  models.push_back(Made(job));
  Options options = MakeOptions();
  options.gpus = 1;
  options.disruption_budget = true;
  options.priority_class = "high";
  options.data_claim = "datasets:/mnt/sets";
  job = MakeJob();
  job.mutable_data()->set_path("/home/me/fashion-mnist");
  models.push_back(Made(job, options));
  options.data_claim.clear();
  options.data_command = "cp -r /image/data/. .";
  models.push_back(Made(job, options));
  return models;
}

TEST(ManifestsTest, ReferToWhatIsThere) {
  for (const Model& model : Variants()) {
    std::vector<Json> documents = Manifests(model);
    documents.push_back(FilesPod(model));
    EXPECT_THAT(References::Broken(documents, kGiven), IsEmpty());
  }
}

// So that the test above can fail.
TEST(ManifestsTest, ReferencesThatAreBrokenAreFound) {
  const std::vector<Json> whole = Manifests(Made(MakeJob()));
  const std::vector<std::string> pointers = {
      "/0/metadata/name",                                         // claim
      "/1/metadata/name",                                         // config map
      "/2/metadata/name",                                         // service
      "/2/spec/selector/app.kubernetes.io~1component",            // label that does not match
      "/2/spec/ports/0/targetPort",                               //
      "/3/spec/podSelector/matchLabels/app.kubernetes.io~1name",  //
      "/4/spec/podFailurePolicy/rules/0/onExitCodes/containerName",
      "/4/spec/template/spec/containers/0/volumeMounts/0/name",
      "/4/spec/template/spec/containers/0/env/1/valueFrom/secretKeyRef/name",
      "/4/spec/template/spec/restartPolicy",
      "/5/spec/template/spec/topologySpreadConstraints/0/labelSelector/matchLabels/"
      "app.kubernetes.io~1instance"};
  for (const std::string& pointer : pointers) {
    std::vector<Json> documents = whole;
    Json& value = documents[pointer[1] - '0'].at(Json::json_pointer(pointer.substr(2)));
    value = "other";
    EXPECT_THAT(References::Broken(documents, kGiven), Not(IsEmpty())) << pointer;
  }
  std::vector<Json> documents = whole;
  documents[2]["spec"].erase("selector");
  EXPECT_THAT(References::Broken(documents, kGiven), Not(IsEmpty()));
}

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

TEST(ManifestsTest, AMonitoringNamespaceReachesTheHealthPortAlone) {
  Options options = MakeOptions();
  options.monitoring_namespace = "watchers";
  const Json ingress = Named(Made(MakeJob(), options), "NetworkPolicy", "")["spec"]["ingress"];
  ASSERT_EQ(ingress.size(), 2);
  EXPECT_EQ(ingress[1]["from"][0]["namespaceSelector"]["matchLabels"],
            Json({{"kubernetes.io/metadata.name", "watchers"}}));
  EXPECT_EQ(ingress[1]["ports"].dump(), "[{\"port\":\"health\"}]");
  EXPECT_EQ(Named(Made(MakeJob()), "NetworkPolicy", "")["spec"]["ingress"].size(), 1);
}

TEST(ManifestsTest, ThreeJobsWithTheFailuresThatEach) {
  const Model model = Made(MakeJob());
  const Json shard = Named(model, "Job", "-shard-0")["spec"];
  const Json servers = Named(model, "Job", "-servers")["spec"];
  const Json workers = Named(model, "Job", "-workers")["spec"];
  EXPECT_FALSE(shard.contains("completionMode"));
  EXPECT_EQ(shard["backoffLimit"], 3);
  EXPECT_EQ(servers["completions"], 2);
  EXPECT_EQ(servers["maxFailedIndexes"], 0);
  EXPECT_EQ(workers["completions"], 4);
  EXPECT_EQ(workers["parallelism"], 4);
  EXPECT_EQ(workers["backoffLimitPerIndex"], 3);
  EXPECT_FALSE(workers.contains("maxFailedIndexes"));
  for (const Json& spec : {shard, servers, workers}) {
    const Json& rules = spec["podFailurePolicy"]["rules"];
    EXPECT_EQ(rules[0]["action"], spec == workers ? "FailIndex" : "FailJob");
    EXPECT_EQ(rules[0]["onExitCodes"]["values"], Json::array({2}));
    EXPECT_EQ(rules[1]["action"], "Ignore");
    EXPECT_EQ(rules[1]["onPodConditions"][0]["type"], "DisruptionTarget");
    EXPECT_EQ(rules[2]["onExitCodes"]["values"], Json::array({143}));
    EXPECT_GT(spec["ttlSecondsAfterFinished"], 0);
  }
}

TEST(ManifestsTest, ServersAreCalledByNames) {
  const Model model = Made(MakeJob());
  const std::string host = absl::StrCat(model.base, "-shard-0.", model.base, ":29500");
  EXPECT_EQ(model.job.cluster().address(), host);
  const Json shard = Named(model, "Job", "-shard-0");
  EXPECT_EQ(shard["spec"]["template"]["spec"]["hostname"], model.base + "-shard-0");
  EXPECT_THAT(ContainerOf(shard)["args"].dump(), HasSubstr("\"--advertise\",\"" + host));
  EXPECT_THAT(ContainerOf(shard)["args"].dump(),
              HasSubstr("\"--run-dir\",\"/runs/" + model.base + "-$(RUN_UID)\""));
  EXPECT_THAT(ContainerOf(Named(model, "Job", "-servers"))["args"].dump(),
              HasSubstr(absl::StrCat("\"--first-shard\",\"1\",\"--advertise\",\"", model.base,
                                     "-servers-$(JOB_COMPLETION_INDEX).", model.base, ":29500")));
  const Json service = Named(model, "Service", "");
  EXPECT_EQ(service["spec"]["clusterIP"], "None");
  EXPECT_EQ(service["spec"]["publishNotReadyAddresses"], true);
}

TEST(ManifestsTest, ADedicatedCoordinatorHasTheVolumeAndAllShardsAreAlike) {
  proto::Job job = MakeJob();
  job.mutable_cluster()->set_dedicated_coordinator(true);
  const Model model = Made(job);
  EXPECT_EQ(ContainerOf(Named(model, "Job", "-coordinator"))["args"][2], "--coordinator");
  EXPECT_EQ(Named(model, "Job", "-servers")["spec"]["completions"], 3);
  EXPECT_THAT(ContainerOf(Named(model, "Job", "-servers"))["args"].dump(),
              HasSubstr("\"--first-shard\",\"0\""));
}

TEST(ManifestsTest, WorkersHaveNoProbesAndNoPorts) {
  const Model model = Made(MakeJob());
  const Json worker = ContainerOf(Named(model, "Job", "-workers"));
  for (const char* key : {"ports", "startupProbe", "readinessProbe", "livenessProbe"}) {
    EXPECT_FALSE(worker.contains(key));
    EXPECT_TRUE(ContainerOf(Named(model, "Job", "-servers")).contains(key));
  }
}

// Kubernetes' Pod Security Standards, profile "restricted".
TEST(ManifestsTest, PodsAreRestricted) {
  for (const Model& model : Variants()) {
    std::vector<Json> pods = {FilesPod(model)["spec"]};
    for (const Group group : Groups(model)) pods.push_back(PodTemplate(model, group)["spec"]);
    for (const Json& pod : pods) {
      EXPECT_EQ(pod["enableServiceLinks"], false);
      EXPECT_EQ(pod["securityContext"]["runAsNonRoot"], true);
      EXPECT_EQ(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
      for (const char* kind : {"initContainers", "containers"}) {
        for (const Json& container : pod.value(kind, Json::array())) {
          const Json& security = container["securityContext"];
          EXPECT_EQ(security["allowPrivilegeEscalation"], false);
          EXPECT_EQ(security["readOnlyRootFilesystem"], true);
          EXPECT_EQ(security["capabilities"]["drop"], Json::array({"ALL"}));
          EXPECT_TRUE(container["resources"]["limits"].contains("memory"));
        }
      }
    }
  }
}

TEST(ManifestsTest, TheJobIsTheOneThatRanElsewhere) {
  const proto::Job job = MakeJob();
  const Model model = Made(job);
  EXPECT_EQ(model.job_digest, JobDigest(job));
  EXPECT_EQ(model.job.cluster().start_timeout(), 1800);
  EXPECT_EQ(Named(model, "ConfigMap", "")["data"]["job.yaml"], ResolvedYaml(model.job));
}

TEST(ManifestsTest, WhatIsRenderedOtherwiseHasOtherNames) {
  Options other = MakeOptions();
  other.image = "example.org/rubato:2";
  proto::Job job = MakeJob();
  job.set_seed(7);
  EXPECT_EQ(Made(MakeJob()).base, Made(MakeJob()).base);
  EXPECT_NE(Made(MakeJob(), other).base, Made(MakeJob()).base);
  EXPECT_NE(Made(job).base, Made(MakeJob()).base);
  EXPECT_THAT(Made(job).base, ::testing::MatchesRegex("try-it-out-[0-9a-f]{8}"));
}

TEST(ManifestsTest, DataAreReadFromTheClaimByTheirLastName) {
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

TEST(ModelTest, MistakesAreOneSentence) {
  const std::vector<Mistake> mistakes = {
      {[](proto::Job*, Options* o) { o->image = ""; }, "--image is missing"},
      {[](proto::Job*, Options* o) { o->image = "a b"; }, "--image: found \"a b\""},
      {[](proto::Job*, Options* o) { o->gpus = -1; }, "--gpus: found -1, expected 0 or 1"},
      {[](proto::Job*, Options* o) { o->gpus = 2; }, "--gpus: found 2, expected 0 or 1"},
      {[](proto::Job* j, Options*) { j->mutable_device()->set_type(proto::Device::TYPE_CUDA); },
       "device: found cuda"},
      {[](proto::Job* j, Options*) { j->mutable_data()->set_path("/here"); },
       "data.path: found /here, a path of this machine"},
      {[](proto::Job*, Options* o) { o->data_claim = "x"; }, "--data-claim: the job draws"},
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
                IsError(absl::StatusCode::kInvalidArgument, HasSubstr(mistake.sentence)));
  }
}

// What yaml-cpp, a reader of YAML 1.2 that is not ours, makes of it.
void ExpectSame(const YAML::Node& node, const Json& value) {
  if (value.is_object() && !value.empty()) {
    ASSERT_TRUE(node.IsMap()) << value;
    ASSERT_EQ(node.size(), value.size());
    for (const auto& [key, item] : value.items()) ExpectSame(node[key], item);
  } else if (value.is_array() && !value.empty()) {
    ASSERT_TRUE(node.IsSequence()) << value;
    ASSERT_EQ(node.size(), value.size());
    for (size_t i = 0; i < value.size(); ++i) ExpectSame(node[i], value[i]);
  } else if (value.is_string()) {
    EXPECT_EQ(node.Scalar(), std::string(value));
    if (node.Tag() == "?") {  // plain: nothing else than text
      bool truth = false;
      double number = 0;
      EXPECT_FALSE(YAML::convert<bool>::decode(node, truth)) << value;
      EXPECT_FALSE(YAML::convert<double>::decode(node, number)) << value;
    }
  } else if (value.is_structured()) {
    EXPECT_EQ(node.size(), 0);
  } else {
    EXPECT_EQ(node.Scalar(), value.dump());
    EXPECT_EQ(node.Tag(), "?");
  }
}

TEST(YamlTextTest, IsReadBackAsItWas) {
  const Json document = {
      {"words", {"true", "No", "null", "~", "", "1", "1e3", "0x1f", "y", "a: b"}},
      {"marks", {"- a", "#x", "a #b", "'", "\"", "\\", "a\tb", "é", "*a", "!"}},
      {"lines", {{"a.b/c", "one\n  two\n\nthree\n"}, {"d", "x\ny"}, {"e", "\n"}}},
      {"nested", {{{"a", {{"b", Json::array({1, 2})}}}}, {{"c", false}}}},
      {"empty", {{"map", Json::object()}, {"list", Json::array()}}},
      {"key: odd", 1.5}};
  ExpectSame(YAML::Load(YamlText(document)), document);
  for (const Model& model : Variants()) {
    const std::vector<Json> documents = Manifests(model);
    const std::vector<YAML::Node> nodes = YAML::LoadAll(YamlText(documents));
    ASSERT_EQ(nodes.size(), documents.size());
    for (size_t i = 0; i < nodes.size(); ++i) ExpectSame(nodes[i], documents[i]);
  }
}

TEST(HeadTest, HasThePodThatTheModelIsCopiedFrom) {
  const Model model = Made(MakeJob());
  const std::string head = HeadText(model, "rubato render");
  std::string pod;
  for (size_t at = 0; at < head.size();) {
    const size_t end = head.find('\n', at);
    const std::string line = head.substr(at, end - at);
    ASSERT_EQ(line[0], '#');
    if (line.substr(0, 3) == "#| ") pod += line.substr(3) + "\n";
    at = end + 1;
  }
  ExpectSame(YAML::Load(pod), FilesPod(model));
}

}  // namespace
}  // namespace rubato::kubernetes
