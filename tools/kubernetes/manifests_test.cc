#include "tools/kubernetes/manifests.h"

#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/kubernetes/references.h"
#include "tools/kubernetes/test_models.h"

namespace rubato::kubernetes {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

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

TEST(ManifestsTest, AJobGoesOnFromWhatIsInTheClaim) {
  Options options = MakeOptions();
  options.runs_claim = "mine";
  for (const char* resume : {"auto", "required", "never", "runs/a", "/runs/a/checkpoints/step-7"}) {
    options.resume = resume;
    const Model model = Made(MakeJob(), options);
    const Json shard = ContainerOf(Named(model, "Job", "-shard-0"));
    EXPECT_THAT(shard["args"].dump(), HasSubstr(absl::StrCat("\"--resume\",\"", resume, "\"")));
    EXPECT_EQ(shard["workingDir"], "/");  // where runs/ is
    for (const char* other : {"-servers", "-workers"}) {
      EXPECT_THAT(ContainerOf(Named(model, "Job", other))["args"].dump(),
                  Not(HasSubstr("--resume")));
    }
  }
  // All TrainJobs of a runtime have one volume.
  options = MakeOptions();
  options.format = Format::kTrainingRuntime;
  proto::Job job = MakeJob();
  job.mutable_checkpoint()->set_resume(proto::Checkpoint::RESUME_AUTO);
  EXPECT_THAT(std::string(Named(Made(job, options), "ConfigMap", "")["data"]["job.yaml"]),
              HasSubstr("resume: auto"));
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

// What `rubato train` tells a script in its environment, but that the address stands in the job.
TEST(ManifestsTest, AScriptRunsInItsOwnImage) {
  proto::Job job = MakeJob();
  job.add_script("python3");
  job.add_script("train.py");
  job.add_script("$(HOME)");  // which is no variable for `rubato train`
  job.mutable_model()->set_preset(proto::Model::PRESET_SCRIPT);
  Options options = MakeOptions();
  options.worker_image = "example.org/net:1";
  const Model model = Made(job, options);
  const Json workers = Named(model, "Job", "-workers");
  const Json worker = ContainerOf(workers);
  EXPECT_EQ(worker["image"], "example.org/net:1");
  EXPECT_EQ(worker["command"], Json::array({"python3", "train.py", "$$(HOME)"}));
  EXPECT_FALSE(worker.contains("args"));
  EXPECT_FALSE(worker.contains("workingDir"));  // the image's, where its files are
  std::map<std::string, Json> variables;
  for (const Json& variable : worker["env"]) variables[variable["name"]] = variable;
  EXPECT_EQ(variables["RUBATO_JOB"]["value"], "/etc/rubato/job.yaml");
  EXPECT_EQ(variables["RUBATO_WORKER"]["value"], "rubato-worker");
  EXPECT_EQ(variables["RUBATO_RANK"]["valueFrom"]["fieldRef"]["fieldPath"],
            "metadata.labels['batch.kubernetes.io/job-completion-index']");
  EXPECT_EQ(variables["LOCAL_RANK"]["value"], "0");
  EXPECT_TRUE(variables.count("RUBATO_KEY") > 0);
  EXPECT_EQ(worker["volumeMounts"][2], Json({{"name", "shm"}, {"mountPath", "/dev/shm"}}));
  EXPECT_EQ(workers["spec"]["template"]["spec"]["volumes"][2]["emptyDir"]["medium"], "Memory");
  for (const char* other : {"-shard-0", "-servers"}) {
    EXPECT_EQ(ContainerOf(Named(model, "Job", other))["image"], "example.org/rubato:1");
  }
  EXPECT_EQ(FilesPod(model)["spec"]["containers"][0]["image"], "example.org/rubato:1");
}

// Where a namespace has a quota on a node's disk, every container is to say how much it takes.
TEST(ManifestsTest, PodsSayWhatTheyTakeOfANodesDisk) {
  const auto check = [](const Json& pod, const std::string& storage) {
    for (const char* kind : {"initContainers", "containers"}) {
      for (const Json& container : pod.value(kind, Json::array())) {
        for (const char* what : {"requests", "limits"}) {
          EXPECT_EQ(container["resources"][what]["ephemeral-storage"], storage);
        }
      }
    }
    for (const Json& volume : pod["volumes"]) {
      if (!volume.contains("emptyDir")) continue;
      const Json& folder = volume["emptyDir"];
      EXPECT_EQ(folder.value("sizeLimit", ""), folder.contains("medium") ? "300Mi" : storage);
    }
  };
  for (Model model : Variants()) {
    const bool is_unknown = model.IsScript() || !model.options.data_command.empty();
    const Json unlimited = PodTemplate(model, Group::kWorkers)["spec"];
    EXPECT_EQ(unlimited["containers"][0]["resources"]["limits"].contains("ephemeral-storage"),
              !is_unknown);
    EXPECT_EQ(unlimited["volumes"][1]["emptyDir"].contains("sizeLimit"), !is_unknown);
    if (!is_unknown) check(unlimited, model.options.gpus > 0 ? "1152Mi" : "128Mi");
    model.sizes.worker_storage = int64_t{5} << 30;
    check(PodTemplate(model, Group::kWorkers)["spec"], "5120Mi");
    check(PodTemplate(model, Group::kCoordinator)["spec"], "128Mi");
    check(FilesPod(model)["spec"], "128Mi");
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

}  // namespace
}  // namespace rubato::kubernetes
