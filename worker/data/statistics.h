// Statistics of the training split, computed once: replacements for missing values, and the
// normalisation of features.
#ifndef RUBATO_WORKER_DATA_STATISTICS_H_
#define RUBATO_WORKER_DATA_STATISTICS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/data/dataset.h"

namespace rubato {

// Mean and standard deviation (dividing by the number of values) of each of the first `quantities`
// channels of `train`, bytes scaled to [0, 1]; in double, in the order of the examples, so with the
// same bits everywhere. The deviation of a channel whose values are all equal is 1, so that it
// becomes 0. Channels behind have mean 0 and deviation 1.
Normalization ComputeNormalization(const Examples& train, int64_t quantities);

// Gives each missing value, in all `splits`, the mean of its column over the values that `train`,
// one of them, has; returns the means. InvalidArgument if it has none; `columns` are names for the
// message.
absl::StatusOr<std::vector<float>> ImputeMeans(const Examples& train,
                                               const std::vector<std::string>& columns,
                                               const std::vector<Examples*>& splits);

}  // namespace rubato

#endif  // RUBATO_WORKER_DATA_STATISTICS_H_
