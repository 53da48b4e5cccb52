// Where values lie that are needed at different times, in one piece of memory.
#ifndef RUBATO_WORKER_MODEL_ARENA_H_
#define RUBATO_WORKER_MODEL_ARENA_H_

#include <cstdint>
#include <vector>

namespace rubato {

// Needed from time `first` to time `last`, both included.
struct ArenaRequest {
  int64_t size = 0;  // values
  int first = 0, last = 0;
};

struct ArenaPlan {
  std::vector<int64_t> offsets;  // of each request, a multiple of 16 values
  int64_t size = 0;              // of the whole
};

// Requests whose times meet lie apart. The largest come first, each at the lowest place that is
// free all its time.
ArenaPlan PlanArena(const std::vector<ArenaRequest>& requests);

}  // namespace rubato

#endif  // RUBATO_WORKER_MODEL_ARENA_H_
