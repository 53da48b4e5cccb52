// Whether the documents of a rendering belong together: what a schema cannot say.
#ifndef RUBATO_TOOLS_KUBERNETES_REFERENCES_H_
#define RUBATO_TOOLS_KUBERNETES_REFERENCES_H_

#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

namespace rubato::kubernetes {

// What refers to nothing, a sentence each: selectors to labels of pods, volumes and variables to
// objects of the documents or `given` ("Secret/x"), mounts to volumes, ports by name, failure
// policies to containers, subdomains to Services.
class References {
 public:
  using Json = nlohmann::ordered_json;

  static std::vector<std::string> Broken(const std::vector<Json>& documents,
                                         const std::set<std::string>& given) {
    References references(documents, given);
    for (const Json& document : documents) references.Check(document);
    return references.broken_;
  }

 private:
  References(const std::vector<Json>& documents, const std::set<std::string>& given)
      : objects_(given) {
    for (const Json& document : documents) {
      objects_.insert(absl::StrCat(std::string(document["kind"]), "/",
                                   std::string(document["metadata"]["name"])));
      if (document["kind"] == "Job") pods_.push_back(document["spec"]["template"]);
      for (const Json& job : Replicated(document)) {
        pods_.push_back(job["template"]["spec"]["template"]);
      }
    }
  }

  void Check(const Json& document) {
    where_ =
        absl::StrCat(std::string(document["kind"]), " ", std::string(document["metadata"]["name"]));
    const Json spec = document.value("spec", Json::object());
    const std::string kind = document["kind"];
    if (kind == "Service") {
      Select(spec.value("selector", Json::object()));
      for (const Json& port : spec["ports"]) Port(port["targetPort"]);
    } else if (kind == "NetworkPolicy") {
      Select(Labels(spec["podSelector"]));
      for (const Json& rule : spec["ingress"]) {
        for (const Json& from : rule["from"]) {
          if (from.contains("podSelector")) Select(Labels(from["podSelector"]));
        }
        for (const Json& port : rule["ports"]) Port(port["port"]);
      }
    } else if (kind == "PodDisruptionBudget") {
      Select(Labels(spec["selector"]));
    } else if (kind == "Job") {
      Policy(spec);
      Pod(spec["template"]);
    } else if (kind == "Pod") {
      Pod(document);
    }
    for (const Json& job : Replicated(document)) {
      Policy(job["template"]["spec"]);
      Pod(job["template"]["spec"]["template"]);
    }
    if (kind == "JobSet") Targets(spec);
    if (kind == "TrainingRuntime") Targets(spec["template"]["spec"]);
  }

  // The jobs of a JobSet, or of that which a TrainingRuntime has for a template.
  static Json Replicated(const Json& document) {
    const Json spec = document.value("spec", Json::object());
    if (document["kind"] == "JobSet") return spec["replicatedJobs"];
    if (document["kind"] == "TrainingRuntime") return spec["template"]["spec"]["replicatedJobs"];
    return Json::array();
  }

  // The policies of a JobSet's `spec` name its jobs.
  void Targets(const Json& spec) {
    std::vector<Json> policies = {spec["successPolicy"]};
    for (const Json& rule : spec["failurePolicy"]["rules"]) policies.push_back(rule);
    for (const Json& policy : policies) {
      for (const Json& target : policy["targetReplicatedJobs"]) {
        bool found = false;
        for (const Json& job : spec["replicatedJobs"]) found = found || job["name"] == target;
        if (!found) Say(absl::StrCat("no job is called ", target.dump()));
      }
    }
  }

  static Json Labels(const Json& selector) { return selector.value("matchLabels", Json::object()); }

  static bool Match(const Json& labels, const Json& pod) {
    const Json& own = pod["metadata"]["labels"];
    for (const auto& [key, value] : labels.items()) {
      if (own.value(key, Json()) != value) return false;
    }
    return true;
  }

  void Say(const std::string& what) { broken_.push_back(absl::StrCat(where_, ": ", what)); }

  void Select(const Json& labels) {
    bool found = false;
    for (const Json& pod : pods_) found = found || Match(labels, pod);
    if (labels.empty() || !found) Say(absl::StrCat("no pod has ", labels.dump()));
  }

  void Port(const Json& name) {
    for (const Json& pod : pods_) {
      for (const Json& container : pod["spec"]["containers"]) {
        for (const Json& port : container.value("ports", Json::array())) {
          if (port["name"] == name) return;
        }
      }
    }
    Say(absl::StrCat("no port is called ", name.dump()));
  }

  void Object(const std::string& object) {
    if (objects_.count(object) == 0) Say("there is no " + object);
  }

  void Policy(const Json& spec) {
    if (spec["template"]["spec"]["restartPolicy"] != "Never") Say("restarts in place");
    for (const Json& rule : spec["podFailurePolicy"]["rules"]) {
      if (!rule.contains("onExitCodes")) continue;
      bool found = false;
      for (const Json& container : spec["template"]["spec"]["containers"]) {
        found = found || container["name"] == rule["onExitCodes"]["containerName"];
      }
      if (!found) Say(absl::StrCat("no container is meant by ", rule.dump()));
    }
  }

  void Pod(const Json& pod) {
    const Json& spec = pod["spec"];
    if (spec.contains("subdomain")) Object("Service/" + std::string(spec["subdomain"]));
    for (const Json& spread : spec.value("topologySpreadConstraints", Json::array())) {
      if (!Match(Labels(spread["labelSelector"]), pod)) Say("is spread among others");
    }
    std::set<std::string> volumes, mounted;
    for (const Json& volume : spec["volumes"]) {
      volumes.insert(std::string(volume["name"]));
      if (volume.contains("configMap")) {
        Object("ConfigMap/" + std::string(volume["configMap"]["name"]));
      }
      if (volume.contains("secret")) {
        Object("Secret/" + std::string(volume["secret"]["secretName"]));
      }
      if (volume.contains("persistentVolumeClaim")) {
        Object("PersistentVolumeClaim/" +
               std::string(volume["persistentVolumeClaim"]["claimName"]));
      }
    }
    for (const char* kind : {"initContainers", "containers"}) {
      for (const Json& container : spec.value(kind, Json::array())) {
        for (const Json& mount : container["volumeMounts"]) {
          mounted.insert(std::string(mount["name"]));
        }
        for (const Json& variable : container.value("env", Json::array())) {
          const Json from = variable.value("valueFrom", Json::object());
          if (from.contains("secretKeyRef")) {
            Object("Secret/" + std::string(from["secretKeyRef"]["name"]));
          }
        }
      }
    }
    if (volumes != mounted) Say("not all volumes are mounted, or more");
  }

  std::set<std::string> objects_;
  std::vector<Json> pods_;
  std::string where_;
  std::vector<std::string> broken_;
};

}  // namespace rubato::kubernetes

#endif  // RUBATO_TOOLS_KUBERNETES_REFERENCES_H_
