#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "tools/kubernetes/folders.h"
#include "tools/kubernetes/head.h"
#include "tools/kubernetes/manifests.h"
#include "tools/kubernetes/yaml_text.h"

namespace rubato::kubernetes {
namespace {

Json Kustomization(const std::string& resource) {
  return {{"apiVersion", "kustomize.config.k8s.io/v1beta1"},
          {"kind", "Kustomization"},
          {"resources", Json::array({resource})}};
}

// JSON patches (RFC 6902) that make `to` of `from`, whose documents are of the same kinds.
Json Patches(const std::vector<Json>& from, const std::vector<Json>& to) {
  RUBATO_CHECK(from.size() == to.size());
  Json patches = Json::array();
  for (size_t i = 0; i < from.size(); ++i) {
    Json operations = Json::diff(from[i], to[i]);
    if (operations.empty()) continue;
    // Kustomize cuts white space from the end of a patch, where a job's last line may stand: so the
    // first operation, which changes the name, is made the last.
    std::rotate(operations.begin(), operations.begin() + 1, operations.end());
    patches.push_back(
        {{"target", {{"kind", from[i]["kind"]}, {"name", from[i]["metadata"]["name"]}}},
         {"options", {{"allowNameChange", true}}},
         {"patch", YamlText(operations)}});
  }
  return patches;
}

}  // namespace

Files KustomizeFolder(const Model& base, const std::map<std::string, Model>& overlays,
                      const std::string& command) {
  const std::vector<Json> documents = Manifests(base);
  Files files;
  files["base/job.yaml"] = absl::StrCat(HeadText(base, command), YamlText(documents));
  files["base/kustomization.yaml"] = YamlText(Kustomization("job.yaml"));
  for (const auto& [name, model] : overlays) {
    Json overlay = Kustomization("../../base");
    const Json patches = Patches(documents, Manifests(model));
    if (!patches.empty()) overlay["patches"] = patches;
    files[absl::StrCat("overlays/", name, "/kustomization.yaml")] = YamlText(overlay);
  }
  return files;
}

}  // namespace rubato::kubernetes
