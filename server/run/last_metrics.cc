#include "server/run/last_metrics.h"

#include <algorithm>

namespace rubato {

void LastMetrics::Add(bool is_of_training, int64_t line_samples, double line_seconds) {
  if (is_of_training) *this = {};  // these go back where the job does
  samples = std::max(samples, line_samples);
  seconds = std::max(seconds, line_seconds);
}

}  // namespace rubato
