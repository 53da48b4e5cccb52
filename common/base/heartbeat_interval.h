#ifndef RUBATO_COMMON_BASE_HEARTBEAT_INTERVAL_H_
#define RUBATO_COMMON_BASE_HEARTBEAT_INTERVAL_H_

#include "absl/time/time.h"

namespace rubato {

// How often a process with a lease says that it is alive.
inline absl::Duration HeartbeatInterval(absl::Duration lease) { return lease / 5; }

}  // namespace rubato

#endif  // RUBATO_COMMON_BASE_HEARTBEAT_INTERVAL_H_
