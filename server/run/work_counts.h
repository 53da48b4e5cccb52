// What became of contributions on arrival, as a run's summary tells it.
#ifndef RUBATO_SERVER_RUN_WORK_COUNTS_H_
#define RUBATO_SERVER_RUN_WORK_COUNTS_H_

#include <cstdint>

namespace rubato {

// At any time given = applied + left_out + partial + lost + under way.
struct WorkCounts {
  int64_t given = 0;
  int64_t applied = 0;
  int64_t left_out = 0;
  int64_t partial = 0;
  int64_t lost = 0;
};

}  // namespace rubato

#endif  // RUBATO_SERVER_RUN_WORK_COUNTS_H_
