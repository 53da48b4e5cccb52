// `rubato render`: a job as another system is to run it.
#ifndef RUBATO_TOOLS_KUBERNETES_RENDER_H_
#define RUBATO_TOOLS_KUBERNETES_RENDER_H_

#include <string>
#include <vector>

namespace rubato {

// Returns the exit code; `arguments` follow the verb.
int RenderMain(const std::vector<std::string>& arguments);

}  // namespace rubato

#endif  // RUBATO_TOOLS_KUBERNETES_RENDER_H_
