// What all connections of a process, and those to it, have in common.
#ifndef RUBATO_COMMON_WIRE_CONNECTION_OPTIONS_H_
#define RUBATO_COMMON_WIRE_CONNECTION_OPTIONS_H_

#include "absl/time/time.h"
#include "common/wire/credentials.h"

namespace rubato {

struct ConnectionOptions {
  Credentials credentials;
  // Of a job's processes: cluster.lease. A connection whose other end is silent (a frozen process, a
  // lost host, a cut) breaks 0.75 s later than that: who has a lease is judged by it first.
  absl::Duration lease = absl::Seconds(10);
};

}  // namespace rubato

#endif  // RUBATO_COMMON_WIRE_CONNECTION_OPTIONS_H_
