// `rubato replay`: the servers of a recorded run once more, without network, threads or clock.
#ifndef RUBATO_TOOLS_REPLAY_REPLAY_H_
#define RUBATO_TOOLS_REPLAY_REPLAY_H_

#include <string>
#include <vector>

namespace rubato {

// Prints what was replayed. Returns the exit code: 1 if anything differs; `arguments` follow the
// verb.
int ReplayMain(const std::vector<std::string>& arguments);

}  // namespace rubato

#endif  // RUBATO_TOOLS_REPLAY_REPLAY_H_
