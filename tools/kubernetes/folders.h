// Formats that are folders of files: a Helm chart, and a base of Kustomize with overlays.
#ifndef RUBATO_TOOLS_KUBERNETES_FOLDERS_H_
#define RUBATO_TOOLS_KUBERNETES_FOLDERS_H_

#include <map>
#include <string>

#include "tools/kubernetes/model.h"

namespace rubato::kubernetes {

// The text of each file, by its path in the folder.
using Files = std::map<std::string, std::string>;

// A chart whose templates, filled with its values.yaml, are the manifests of `model`, and whose
// notes are what to type then.
Files HelmChart(const Model& model);

// The manifests of `base` in base/, and overlays/NAME for each of `overlays`: patches that make of
// them the manifests of that model. A model that renders as many documents as `base`.
Files KustomizeFolder(const Model& base, const std::map<std::string, Model>& overlays,
                      const std::string& command);

}  // namespace rubato::kubernetes

#endif  // RUBATO_TOOLS_KUBERNETES_FOLDERS_H_
