// How often periodic lines are written (metrics, and the progress of `rubato train`), so that a run
// of any length leaves a file of readable size.
#ifndef RUBATO_SERVER_RUN_LINE_STRIDE_H_
#define RUBATO_SERVER_RUN_LINE_STRIDE_H_

#include <cstdint>

namespace rubato {

// The number of intervals from one line to the next, after `intervals` intervals: 1 at first, then
// a power of two such that each doubling of the run adds `lines` lines. So the number of lines
// grows with the logarithm of the length: 2 * lines after the first 2 * lines intervals, (2 + k) *
// lines after 2^k times as many.
inline int64_t LineStride(int64_t intervals, int64_t lines) {
  int64_t stride = 1;
  while (intervals / stride >= 2 * lines) stride *= 2;
  return stride;
}

// `lines` of metrics.jsonl and TensorBoard's file.
constexpr int64_t kMetricsLines = 1 << 14;

}  // namespace rubato

#endif  // RUBATO_SERVER_RUN_LINE_STRIDE_H_
