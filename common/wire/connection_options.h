// Settings that all connections from and to a process share.
#ifndef RUBATO_COMMON_WIRE_CONNECTION_OPTIONS_H_
#define RUBATO_COMMON_WIRE_CONNECTION_OPTIONS_H_

#include <memory>
#include <string>

#include "absl/time/time.h"
#include "common/wire/connections.h"
#include "common/wire/credentials.h"
#include "common/wire/grpc_types.h"
#include "common/wire/refusals.h"

namespace rubato {

struct ConnectionOptions {
  Credentials credentials;
  // Of a job's processes: cluster.lease. A connection whose other end is silent (a frozen process,
  // a lost host, a cut) breaks within it, 0.05 to 0.35 s before its end (KeepAlive in
  // common/base/lease.h).
  absl::Duration lease = absl::Seconds(10);
  // The name of the coordinator in messages of processes that call it.
  std::string coordinator = "the coordinator (shard 0)";
  // For a server: the connections to it.
  std::shared_ptr<Connections> connections;
  // For a server: the peers that it refuses.
  std::shared_ptr<Refusals> refusals = std::make_shared<Refusals>();
  // For a server that calls itself: its own address, and a channel to itself without a socket,
  // which would take two more file descriptors.
  std::string own_address;
  std::shared_ptr<grpc::Channel> own_channel;
};

}  // namespace rubato

#endif  // RUBATO_COMMON_WIRE_CONNECTION_OPTIONS_H_
