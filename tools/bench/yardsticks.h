// What a machine's memory and clock allow, to measure others by.
#ifndef RUBATO_TOOLS_BENCH_YARDSTICKS_H_
#define RUBATO_TOOLS_BENCH_YARDSTICKS_H_

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"

namespace rubato {

// Seconds that `call` takes, once.
double SecondsOf(absl::FunctionRef<void()> call);

// Likewise: the median of as many calls as go into `seconds`, at least five, after three.
double MedianSeconds(double seconds, absl::FunctionRef<void()> call);

// STREAM's triad (McCalpin): a[i] = b[i] + s · c[i] on one thread over arrays of doubles far larger
// than any cache. Counted as in STREAM, 24 bytes an element: the processor's read of `a` before the
// write does not count.
class Triad {
 public:
  Triad();
  double GigabytesPerSecond();  // of one pass

 private:
  std::vector<double> a_, b_, c_;
};

// memcpy on one thread between arrays far larger than any cache, in bytes copied.
class Copying {
 public:
  Copying();
  double GigabytesPerSecond();

 private:
  std::vector<char> from_, to_;
};

}  // namespace rubato

#endif  // RUBATO_TOOLS_BENCH_YARDSTICKS_H_
