#include "tools/kubernetes/manifests.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/exit_code.h"
#include "common/job/job.h"
#include "tools/kubernetes/places.h"

namespace rubato::kubernetes {
namespace {

constexpr int kLeft = 143;  // exit code after SIGTERM

Json PodSelector(const Model& model, const std::string& component) {
  Json labels = {{"app.kubernetes.io/name", "rubato"}, {"app.kubernetes.io/instance", model.base}};
  if (!component.empty()) labels["app.kubernetes.io/component"] = component;
  return {{"matchLabels", labels}};
}

Json OnExit(const Model& model, Group group, const std::string& action, int code) {
  return {{"action", action},
          {"onExitCodes",
           {{"containerName", ContainerName(model, group)},
            {"operator", "In"},
            {"values", Json::array({code})}}}};
}

// An end that repeating cannot help is final; who was asked to leave, or whose node is lost, is
// replaced and has not failed.
Json FailurePolicy(const Model& model, Group group) {
  const Json disrupted = {
      {"action", "Ignore"},
      {"onPodConditions", Json::array({{{"type", "DisruptionTarget"}, {"status", "True"}}})}};
  return {
      {"rules", Json::array({OnExit(model, group,
                                    group == Group::kWorkers ? "FailIndex" : "FailJob", kExitUsage),
                             disrupted, OnExit(model, group, "Ignore", kLeft)})}};
}

int OtherServers(const Model& model) {
  const proto::Cluster& cluster = model.job.cluster();
  return cluster.servers() - (cluster.dedicated_coordinator() ? 0 : 1);
}

}  // namespace

std::vector<Group> Groups(const Model& model) {
  if (OtherServers(model) == 0) return {Group::kCoordinator, Group::kWorkers};
  return {Group::kCoordinator, Group::kServers, Group::kWorkers};
}

std::string GroupWord(const Model& model, Group group) {
  switch (group) {
    case Group::kCoordinator:
      return model.job.cluster().dedicated_coordinator() ? "coordinator" : "shard-0";
    case Group::kServers:
      return "servers";
    case Group::kWorkers:
      break;
  }
  return IsTraining(model) ? kTrainerNode : "workers";
}

std::string JobName(const Model& model, Group group) {
  const std::string word = GroupWord(model, group);
  if (model.options.format == Format::kPlain) return absl::StrCat(model.base, "-", word);
  return absl::StrCat(IsTraining(model) ? model.name : model.base, "-", word, "-0");
}

std::string PodHost(const Model& model, Group group, const std::string& index) {
  const std::string word = GroupWord(model, group);
  if (model.options.format == Format::kPlain) {
    return absl::StrCat(model.base, "-", word, index.empty() ? "" : "-", index, ".", model.base);
  }
  // SET-GROUP-JOB-POD, as JobSet calls them; its Service has its own name.
  const std::string set = IsTraining(model) ? "$(JOBSET_NAME)" : model.base;
  return absl::StrCat(set, "-", word, "-0-", index.empty() ? "0" : index, ".", set);
}

std::string CoordinatorHost(const Model& model) { return PodHost(model, Group::kCoordinator, ""); }

Json Document(const Model& model, const std::string& api, const std::string& kind,
              const std::string& name) {
  return {{"apiVersion", api},
          {"kind", kind},
          {"metadata", {{"name", name}, {"labels", Labels(model)}}}};
}

Json Labels(const Model& model) {
  return {{"app.kubernetes.io/name", "rubato"}, {"app.kubernetes.io/instance", model.base}};
}

Json JobSpec(const Model& model, Group group) {
  const int restarts = model.job.cluster().max_restarts();
  const bool is_plain = model.options.format == Format::kPlain;
  Json spec = Json::object();
  if (group == Group::kCoordinator) {
    if (!is_plain) {
      spec["completionMode"] = "Indexed";  // a JobSet calls its pods by their indexes
      spec["completions"] = 1;
      spec["parallelism"] = 1;
    }
    spec["backoffLimit"] = restarts;
  } else {
    const int pods =
        group == Group::kServers ? OtherServers(model) : model.job.cluster().workers().start();
    spec["completionMode"] = "Indexed";
    spec["completions"] = pods;
    spec["parallelism"] = pods;
    spec["backoffLimitPerIndex"] = restarts;
    // No server can be missing; of the workers min can.
    if (group == Group::kServers) spec["maxFailedIndexes"] = 0;
  }
  spec["podReplacementPolicy"] = "Failed";
  spec["podFailurePolicy"] = FailurePolicy(model, group);
  // A JobSet would make anew the Job that is missing: it has this itself.
  if (is_plain) spec["ttlSecondsAfterFinished"] = kTtlSeconds;
  spec["template"] = PodTemplate(model, group);
  return spec;
}

Json ConfigMap(const Model& model) {
  Json map = Document(model, "v1", "ConfigMap", model.base);
  map["metadata"]["annotations"] = {{"rubato-job-digest", model.job_digest}};
  map["immutable"] = true;
  map["data"] = {{"job.yaml", ResolvedYaml(model.job)}};
  return map;
}

Json Service(const Model& model) {
  Json service = Document(model, "v1", "Service", model.base);
  service["spec"] = {
      {"clusterIP", "None"},
      {"publishNotReadyAddresses", true},
      {"selector", PodSelector(model, "server")["matchLabels"]},
      {"ports", Json::array({{{"name", kPortName}, {"port", kPort}, {"targetPort", kPortName}}})}};
  return service;
}

Json NetworkPolicy(const Model& model) {
  Json policy = Document(model, "networking.k8s.io/v1", "NetworkPolicy", model.base);
  const Json from = {{"podSelector", PodSelector(model, "")}};
  policy["spec"] = {{"podSelector", PodSelector(model, "")},
                    {"policyTypes", Json::array({"Ingress"})},
                    {"ingress", Json::array({{{"from", Json::array({from})},
                                              {"ports", Json::array({{{"port", kPortName}}})}}})}};
  if (!model.options.monitoring_namespace.empty()) {
    const Json labels = {{"kubernetes.io/metadata.name", model.options.monitoring_namespace}};
    policy["spec"]["ingress"].push_back(
        {{"from", Json::array({{{"namespaceSelector", {{"matchLabels", labels}}}}})},
         {"ports", Json::array({{{"port", kHealthPortName}}})}});
  }
  return policy;
}

Json RunsClaim(const Model& model) {
  constexpr int64_t kGibibyte = int64_t{1} << 30;
  Json claim = Document(model, "v1", "PersistentVolumeClaim", RunsClaimName(model));
  const int64_t gibibytes = (model.sizes.runs + kGibibyte - 1) / kGibibyte;
  claim["spec"] = {{"accessModes", Json::array({"ReadWriteOnce"})},
                   {"resources", {{"requests", {{"storage", absl::StrCat(gibibytes, "Gi")}}}}}};
  return claim;
}

Json DisruptionBudget(const Model& model) {
  Json budget = Document(model, "policy/v1", "PodDisruptionBudget", model.base);
  const proto::Cluster& cluster = model.job.cluster();
  // An integer, which alone is allowed for pods of Jobs.
  budget["spec"] = {{"minAvailable", cluster.servers() + (cluster.dedicated_coordinator() ? 1 : 0)},
                    {"selector", PodSelector(model, "server")}};
  return budget;
}

std::vector<Json> Manifests(const Model& model) {
  std::vector<Json> documents;
  if (model.options.runs_claim.empty()) documents.push_back(RunsClaim(model));
  documents.push_back(ConfigMap(model));
  // A JobSet has its own.
  if (model.options.format == Format::kPlain) documents.push_back(Service(model));
  documents.push_back(NetworkPolicy(model));
  if (model.options.disruption_budget) documents.push_back(DisruptionBudget(model));
  switch (model.options.format) {
    case Format::kPlain:
      for (const Group group : Groups(model)) {
        Json job = Document(model, "batch/v1", "Job", JobName(model, group));
        job["spec"] = JobSpec(model, group);
        documents.push_back(std::move(job));
      }
      break;
    case Format::kJobSet:
      documents.push_back(JobSet(model));
      break;
    case Format::kTrainingRuntime:
      documents.push_back(TrainingRuntime(model));
      break;
  }
  return documents;
}

}  // namespace rubato::kubernetes
