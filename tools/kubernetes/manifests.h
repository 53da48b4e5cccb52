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

// The name of a group's Job.
std::string GroupName(const Model& model, Group group);
// What others call a pod of a group, by the headless Service's names: HOST.SERVICE.
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

// All documents of plain Kubernetes, in the order in which they are applied.
std::vector<Json> Manifests(const Model& model);

}  // namespace rubato::kubernetes

#endif  // RUBATO_TOOLS_KUBERNETES_MANIFESTS_H_
