// What all connections of a process, and those to it, have in common.
#ifndef RUBATO_COMMON_WIRE_CONNECTION_OPTIONS_H_
#define RUBATO_COMMON_WIRE_CONNECTION_OPTIONS_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "absl/time/time.h"
#include "common/wire/connections.h"
#include "common/wire/credentials.h"
#include "common/wire/refusals.h"

namespace rubato {

struct ConnectionOptions {
  Credentials credentials;
  // Of a job's processes: cluster.lease. A connection whose other end is silent (a frozen process,
  // a lost host, a cut) breaks within it, 0.05 to 0.35 s before its end (KeepAlive in
  // common/base/lease.h).
  absl::Duration lease = absl::Seconds(10);
  // What the coordinator, which a process calls, is called in its messages.
  std::string coordinator = "the coordinator (shard 0)";
  // Of a server: those that there are to it.
  std::shared_ptr<Connections> connections;
  // Of a server: whom it refuses.
  std::shared_ptr<Refusals> refusals = std::make_shared<Refusals>();
  // Of a server that calls itself: where it is reached, and the way there without a socket, for
  // which it would need two more descriptors.
  std::string own_address;
  std::shared_ptr<grpc::Channel> own_channel;
};

}  // namespace rubato

#endif  // RUBATO_COMMON_WIRE_CONNECTION_OPTIONS_H_
