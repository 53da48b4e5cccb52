#include "common/space/flat_space.h"

#include <algorithm>

#include "common/base/check.h"

namespace rubato {

int64_t ValueCount(const proto::Parameter& parameter) {
  int64_t count = 1;
  for (int64_t extent : parameter.shape()) count *= extent;
  return count;
}

int64_t ValueCount(const proto::Layout& layout) {
  int64_t count = 0;
  for (const proto::Parameter& parameter : layout.parameters()) count += ValueCount(parameter);
  return count;
}

int64_t TrainableCount(const proto::Layout& layout) {
  int64_t count = 0;
  for (const proto::Parameter& parameter : layout.parameters()) {
    if (parameter.average() == 0) count += ValueCount(parameter);
  }
  return count;
}

std::string ParameterAt(const proto::Layout& layout, int64_t index) {
  for (const proto::Parameter& parameter : layout.parameters()) {
    if (index < ValueCount(parameter)) return parameter.name();
    index -= ValueCount(parameter);
  }
  return "an unknown parameter";
}

FlatSpace::FlatSpace(int64_t values, int64_t block_values)
    : values_(values),
      block_values_(block_values),
      blocks_((values + block_values - 1) / block_values) {
  RUBATO_CHECK(values >= 0 && block_values > 0);
}

Range FlatSpace::BlockValues(int64_t block) const {
  RUBATO_CHECK(0 <= block && block < blocks_);
  return {block * block_values_, std::min(values_, (block + 1) * block_values_)};
}

}  // namespace rubato
