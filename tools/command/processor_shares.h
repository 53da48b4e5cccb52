// Which processors of a machine each of its workers may use.
#ifndef RUBATO_TOOLS_COMMAND_PROCESSOR_SHARES_H_
#define RUBATO_TOOLS_COMMAND_PROCESSOR_SHARES_H_

#include <cstdint>
#include <string>
#include <vector>

namespace rubato {

// As Linux numbers it.
struct Processor {
  int number = 0;
  int package = 0;    // the chip
  int core = 0;       // within the package; with hyper-threading a core is several processors
  int64_t speed = 0;  // in a unit of the system's; 0 if it is not told
};

// Those that this process may use; none if the system does not tell. `sys` is for tests.
std::vector<Processor> AllowedProcessors(const std::string& sys = "/sys/devices/system/cpu");

// The numbers of the processors of each worker, for workers of `threads` computing threads each:
// all processors, in equal shares, which divide packages and cores as little as may be. None if
// workers are better not bound:
// * there is one worker;
// * their threads do not fill more than half of the processors: the kernel finds idle ones;
// * the shares would not be equal: three workers on two processors, or on four. Four on two are;
// * some processors are slower than others: in sync all would wait for who has those.
std::vector<std::vector<int>> ProcessorShares(std::vector<Processor> processors, int workers,
                                              int threads);

}  // namespace rubato

#endif  // RUBATO_TOOLS_COMMAND_PROCESSOR_SHARES_H_
