#include "common/space/flat_space.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
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

absl::Status CheckLayout(const proto::Layout& layout) {
  constexpr int64_t kMostValues = int64_t{1} << 40;
  constexpr size_t kMostName = 4096;
  int64_t values = 0;
  bool has_average = false;
  for (const proto::Parameter& parameter : layout.parameters()) {
    const auto wrong = [&](absl::string_view what) {
      return absl::InvalidArgumentError(
          absl::StrCat("the layout's parameter ", parameter.name().substr(0, 100), " ", what));
    };
    int64_t count = 1;
    for (const int64_t extent : parameter.shape()) {
      if (extent < 0) return wrong(absl::StrCat("has an extent of ", extent));
      if (__builtin_mul_overflow(count, extent, &count)) count = kMostValues + 1;
      if (count > kMostValues) break;
    }
    values += count;
    if (values > kMostValues) return wrong("comes behind more than 2^40 values, or has them");
    if (parameter.name().size() > kMostName) return wrong("has a name of more than 4096 bytes");
    const proto::Initializer& init = parameter.init();
    if (!std::isfinite(init.uniform_bound()) || !std::isfinite(init.normal_deviation()) ||
        !std::isfinite(init.constant())) {
      return wrong("begins with values that are not finite");
    }
    if (!(parameter.average() >= 0 && parameter.average() <= 1)) {
      return wrong(absl::StrCat("has an average of ", parameter.average(), ", expected 0 to 1"));
    }
    has_average = has_average || parameter.average() > 0;
    if (has_average && parameter.average() == 0) return wrong("lies behind averages of statistics");
  }
  for (const proto::Constant& constant : layout.constants()) {
    if (std::max(constant.name().size(), constant.digest().size()) > kMostName) {
      return absl::InvalidArgumentError(
          "the layout has a parameter that is not trained with a name or digest of more than 4096 "
          "bytes");
    }
  }
  return absl::OkStatus();
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
