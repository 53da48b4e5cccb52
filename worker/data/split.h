// Splits: which examples of a set are kept apart.
#ifndef RUBATO_WORKER_DATA_SPLIT_H_
#define RUBATO_WORKER_DATA_SPLIT_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/data/dataset.h"

namespace rubato {

// How many of `size` examples a fraction is: to nearest, half up.
int64_t FractionOf(int64_t size, double fraction);

// InvalidArgument, naming `what` (a key of the job), if the fraction of `size` examples is none or
// all of them.
absl::Status CheckFraction(double fraction, absl::string_view what, int64_t size);

// Takes a fraction of `examples` out of them: a pure function of (key, size, fraction), the same on
// every machine. Both parts keep the order. Errors as of CheckFraction.
absl::StatusOr<Examples> TakeFraction(double fraction, uint64_t key, absl::string_view what,
                                      Examples* examples);

// The same, but takes the last examples: for a text, whose neighbouring parts are related.
absl::StatusOr<Examples> TakeEnd(double fraction, absl::string_view what, Examples* examples);

}  // namespace rubato

#endif  // RUBATO_WORKER_DATA_SPLIT_H_
