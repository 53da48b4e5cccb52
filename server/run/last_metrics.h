// How far a run came, as the lines of its metrics tell it to the successor of a coordinator that
// was lost: by the last line of training and the tests behind it, which may be of parameters of
// long before.
#ifndef RUBATO_SERVER_RUN_LAST_METRICS_H_
#define RUBATO_SERVER_RUN_LAST_METRICS_H_

#include <cstdint>

namespace rubato {

struct LastMetrics {
  int64_t samples = 0;
  double seconds = 0;  // of training

  // The next line.
  void Add(bool is_of_training, int64_t line_samples, double line_seconds);
};

}  // namespace rubato

#endif  // RUBATO_SERVER_RUN_LAST_METRICS_H_
