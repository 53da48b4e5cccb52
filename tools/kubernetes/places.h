// Names, ports and folders that the parts of the manifests share.
#ifndef RUBATO_TOOLS_KUBERNETES_PLACES_H_
#define RUBATO_TOOLS_KUBERNETES_PLACES_H_

#include <string>

#include "tools/kubernetes/manifests.h"

namespace rubato::kubernetes {

constexpr int kPort = 29500;  // of every server
constexpr int kHealthPort = 29501;
constexpr const char* kPortName = "rubato";
constexpr const char* kHealthPortName = "health";

constexpr const char* kJobFolder = "/etc/rubato";
constexpr const char* kJobFile = "/etc/rubato/job.yaml";
constexpr const char* kCertificatesFolder = "/etc/rubato-certificates";
constexpr const char* kRunsFolder = "/runs";
constexpr const char* kDataFolder = "/data";
constexpr const char* kStorageKey = "ephemeral-storage";  // a node's disk, among resources

// Seconds from SIGTERM to SIGKILL. A process gives itself 30 (kStopGrace); a server may have a
// checkpoint to write besides.
constexpr int kServerGrace = 120;
constexpr int kWorkerGrace = 60;

// Also what `app.kubernetes.io/component` says of a pod.
inline std::string Component(Group group) { return group == Group::kWorkers ? "worker" : "server"; }
inline bool IsTraining(const Model& model) {
  return model.options.format == Format::kTrainingRuntime;
}
// The trainer's controllers look for a job and a container of this name.
constexpr const char* kTrainerNode = "node";
inline std::string ContainerName(const Model& model, Group group) {
  return IsTraining(model) && group == Group::kWorkers ? kTrainerNode : Component(group);
}

// Made by whoever applies the manifests: keys or certificates.
inline std::string SecretName(const Model& model, bool is_server) {
  return model.name + (is_server ? "-server" : "-worker");
}

inline std::string RunsClaimName(const Model& model) {
  return model.options.runs_claim.empty() ? model.base + "-runs" : model.options.runs_claim;
}

}  // namespace rubato::kubernetes

#endif  // RUBATO_TOOLS_KUBERNETES_PLACES_H_
