// `rubato simulate`: what would this job do on that many workers, with these speeds and this
// network?
#ifndef RUBATO_TOOLS_COMMAND_SIMULATE_H_
#define RUBATO_TOOLS_COMMAND_SIMULATE_H_

#include <string>
#include <vector>

namespace rubato {

// Returns the exit code; `arguments` follow the verb.
int SimulateMain(const std::vector<std::string>& arguments);

}  // namespace rubato

#endif  // RUBATO_TOOLS_COMMAND_SIMULATE_H_
