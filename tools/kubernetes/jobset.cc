// One JobSet in place of the Jobs, and the runtime with which TrainJobs make such.
#include <utility>

#include "tools/kubernetes/manifests.h"
#include "tools/kubernetes/places.h"

namespace rubato::kubernetes {
namespace {

constexpr const char* kTrainerApi = "trainer.kubeflow.org/v1alpha1";

// The `spec` of a JobSet.
Json JobSetSpec(const Model& model) {
  Json jobs = Json::array(), servers = Json::array();
  for (const Group group : Groups(model)) {
    const std::string word = GroupWord(model, group);
    Json labels = Labels(model);
    if (group != Group::kWorkers) {
      servers.push_back(word);
    } else if (IsTraining(model)) {
      labels["trainer.kubeflow.org/trainjob-ancestor-step"] = "trainer";
    }
    jobs.push_back(
        {{"name", word},
         {"replicas", 1},
         {"template", {{"metadata", {{"labels", labels}}}, {"spec", JobSpec(model, group)}}}});
  }
  // The training has succeeded when its coordinator has: then the others are ended. It has failed
  // when a server has. Of workers some may have failed: their Job then ends as failed when all
  // have ended, which may be a moment before the coordinator has; so it is begun anew, once.
  const Json rules = Json::array(
      {{{"name", "workers"},
        {"action", "RestartJob"},
        {"targetReplicatedJobs", Json::array({GroupWord(model, Group::kWorkers)})}},
       {{"name", "servers"}, {"action", "FailJobSet"}, {"targetReplicatedJobs", servers}}});
  return {{"network", {{"enableDNSHostnames", true}, {"publishNotReadyAddresses", true}}},
          {"successPolicy",
           {{"operator", "All"},
            {"targetReplicatedJobs", Json::array({GroupWord(model, Group::kCoordinator)})}}},
          {"failurePolicy", {{"maxRestarts", 1}, {"rules", rules}}},
          {"ttlSecondsAfterFinished", kTtlSeconds},
          {"replicatedJobs", jobs}};
}

}  // namespace

Json JobSet(const Model& model) {
  Json set = Document(model, "jobset.x-k8s.io/v1alpha2", "JobSet", model.base);
  if (!model.options.queue.empty()) {
    set["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = model.options.queue;
  }
  set["spec"] = JobSetSpec(model);
  return set;
}

Json TrainingRuntime(const Model& model) {
  Json runtime = Document(model, kTrainerApi, "TrainingRuntime", model.base);
  runtime["spec"] = {{"mlPolicy", {{"numNodes", model.job.cluster().workers().start()}}},
                     {"template", {{"spec", JobSetSpec(model)}}}};
  return runtime;
}

Json TrainJobDocument(const Model& model) {
  return {
      {"apiVersion", kTrainerApi},
      {"kind", "TrainJob"},
      {"metadata", {{"name", model.name}}},
      {"spec",
       {{"runtimeRef",
         {{"apiGroup", "trainer.kubeflow.org"}, {"kind", "TrainingRuntime"}, {"name", model.base}}},
        {"trainer", {{"numNodes", model.job.cluster().workers().start()}}}}}};
}

}  // namespace rubato::kubernetes
