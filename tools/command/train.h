// `rubato train`: one command from a job file to a trained model.
#ifndef RUBATO_TOOLS_COMMAND_TRAIN_H_
#define RUBATO_TOOLS_COMMAND_TRAIN_H_

#include <string>
#include <vector>

#include "common/base/process_exit.h"

namespace rubato {

// Checks the job, makes its run folder, starts its servers and workers, shows progress until they
// have ended, and ends them if one fails or a signal comes. Returns the exit code: that of the
// first process that failed. `program` is how this program was called, for suggestions; `arguments`
// follow the verb.
int TrainMain(const std::string& program, const std::vector<std::string>& arguments,
              SignalWatcher& signals);

}  // namespace rubato

#endif  // RUBATO_TOOLS_COMMAND_TRAIN_H_
