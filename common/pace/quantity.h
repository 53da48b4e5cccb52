// Times and bandwidths as people write them.
#ifndef RUBATO_TOOLS_SIMULATOR_QUANTITY_H_
#define RUBATO_TOOLS_SIMULATOR_QUANTITY_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tools/simulator/event_queue.h"

namespace rubato {

// "100us", "2.5ms", "1s", "80ns", "3m", "1h", "0". InvalidArgument, which begins with `what`.
absl::StatusOr<SimTime> ParseTime(absl::string_view what, absl::string_view text);

// Bytes a second: "10Gbit", "800Mbit" (powers of ten, as networks are sold), "1.2GB", "500MB"
// (likewise), or "unlimited".
absl::StatusOr<double> ParseBandwidth(absl::string_view what, absl::string_view text);

}  // namespace rubato

#endif  // RUBATO_TOOLS_SIMULATOR_QUANTITY_H_
