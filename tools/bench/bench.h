// The verb `rubato bench`: its first word says what is measured.
#ifndef RUBATO_TOOLS_BENCH_BENCH_H_
#define RUBATO_TOOLS_BENCH_BENCH_H_

#include <string>
#include <vector>

#include "common/base/process_exit.h"

namespace rubato {

// Returns the exit code.
int BenchMain(const std::vector<std::string>& arguments, SignalWatcher& signals);

}  // namespace rubato

#endif  // RUBATO_TOOLS_BENCH_BENCH_H_
