// The manifests of a job: documents as Kubernetes takes them, made of the model alone.
#ifndef RUBATO_TOOLS_KUBERNETES_MANIFESTS_H_
#define RUBATO_TOOLS_KUBERNETES_MANIFESTS_H_

#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "tools/kubernetes/model.h"

namespace rubato::kubernetes {

using Json = nlohmann::ordered_json;

// The groups of a job's pods: a Job each.
enum class Group {
  kCoordinator,  // shard 0, or the coordinator of its own: one pod, with the run's folder
  kServers,      // the other shards; there may be none
  kWorkers,
};

// The groups that `model` has.
std::vector<Group> Groups(const Model& model);

// What a group is called: "shard-0".
std::string GroupWord(const Model& model, Group group);
// The name of a group's Job; of a TrainingRuntime, in the TrainJob of TrainJobDocument.
std::string JobName(const Model& model, Group group);
// What others call a pod of a group, by the headless Service's names: HOST.SERVICE. In a
// TrainingRuntime they begin with $(JOBSET_NAME), a variable of the containers.
std::string PodHost(const Model& model, Group group, const std::string& index);
std::string CoordinatorHost(const Model& model);

// The labels of all that is rendered.
Json Labels(const Model& model);

// The template of a group's pods.
Json PodTemplate(const Model& model, Group group);
// The `spec` of a group's Job.
Json JobSpec(const Model& model, Group group);

Json ConfigMap(const Model& model);
Json Service(const Model& model);
Json NetworkPolicy(const Model& model);
Json RunsClaim(const Model& model);
Json DisruptionBudget(const Model& model);
// A pod that mounts the run's folder, to copy from when the job's pods have ended.
Json FilesPod(const Model& model);

// One for all groups (jobset.cc).
Json JobSet(const Model& model);
Json TrainingRuntime(const Model& model);
// A TrainJob that refers to the TrainingRuntime: an example of what a data scientist applies.
Json TrainJobDocument(const Model& model);

// Of `kind`, with labels and without `spec`.
Json Document(const Model& model, const std::string& api, const std::string& kind,
              const std::string& name);
constexpr int kTtlSeconds = 24 * 60 * 60;  // from the end of the pods to their removal

// All documents of the model's format, in the order in which they are applied.
std::vector<Json> Manifests(const Model& model);

}  // namespace rubato::kubernetes

#endif  // RUBATO_TOOLS_KUBERNETES_MANIFESTS_H_
