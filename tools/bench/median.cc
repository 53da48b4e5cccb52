#include "tools/bench/median.h"

#include <algorithm>
#include <cstddef>

namespace rubato {

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

}  // namespace rubato
