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

// The same commands for a chart, whose `release` they name; the lines of the pod begin with `#| `.
// `besides` is empty or kWithVolume, or says when it is which.
std::string NotesText(const Model& model, const std::string& release, const std::string& besides);
// That removing the job removes a claim of its own.
inline constexpr char kWithVolume[] = ", the volume with the model too";

}  // namespace rubato::kubernetes

#endif  // RUBATO_TOOLS_KUBERNETES_HEAD_H_
