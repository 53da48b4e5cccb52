// What stands above rendered manifests, as comments: what a person types with them.
#ifndef RUBATO_TOOLS_KUBERNETES_HEAD_H_
#define RUBATO_TOOLS_KUBERNETES_HEAD_H_

#include <string>

#include "tools/kubernetes/model.h"

namespace rubato::kubernetes {

// Lines that begin with `#`. Those of the pod that mounts the run's folder begin with `#| `, so
// that it can be applied from the file. `command` is what has rendered.
// In a TrainingRuntime, those of an example TrainJob begin with `#> `.
std::string HeadText(const Model& model, const std::string& command);

// How to make the keys or certificates, as lines that begin with `# `.
std::string SecretsText(const Model& model);

}  // namespace rubato::kubernetes

#endif  // RUBATO_TOOLS_KUBERNETES_HEAD_H_
