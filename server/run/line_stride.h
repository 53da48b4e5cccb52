// How often what is written at intervals is written, so that a run of any length leaves a file that
// can be read: the lines of its metrics, and the progress that `rubato train` prints.
#ifndef RUBATO_SERVER_RUN_LINE_STRIDE_H_
#define RUBATO_SERVER_RUN_LINE_STRIDE_H_

#include <cstdint>

namespace rubato {

// A line is due every so many intervals, `intervals` of which have passed since the beginning: at
// first 1; then the power of two by which there are `lines` more each time that the run has become
// twice as long. So their number grows with the logarithm of its length: 2 * lines of the first so
// many intervals, (2 + k) * lines of 2^k times as many.
inline int64_t LineStride(int64_t intervals, int64_t lines) {
  int64_t stride = 1;
  while (intervals / stride >= 2 * lines) stride *= 2;
  return stride;
}

// `lines` of metrics.jsonl and TensorBoard's file.
constexpr int64_t kMetricsLines = 1 << 14;

}  // namespace rubato

#endif  // RUBATO_SERVER_RUN_LINE_STRIDE_H_
