// The median of measurements.
#ifndef RUBATO_TOOLS_BENCH_MEDIAN_H_
#define RUBATO_TOOLS_BENCH_MEDIAN_H_

#include <vector>

namespace rubato {

// The middle one; of an even number the mean of the two middle ones. `values` is not empty.
double Median(std::vector<double> values);

}  // namespace rubato

#endif  // RUBATO_TOOLS_BENCH_MEDIAN_H_
