// What a closed shard tells the coordinator, as the message that every shell of the core sends.
#ifndef RUBATO_SERVER_SHARD_CLOSED_H_
#define RUBATO_SERVER_SHARD_CLOSED_H_

#include "proto/cluster.pb.h"
#include "server/shard.h"

namespace rubato {

// The answer to ShardAction::Kind::kClosed.
proto::ShardClosed ClosedMessage(const Shard& shard);

}  // namespace rubato

#endif  // RUBATO_SERVER_SHARD_CLOSED_H_
