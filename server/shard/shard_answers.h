// What a shard tells the coordinator of its ledgers.
#ifndef RUBATO_SERVER_SHARD_SHARD_ANSWERS_H_
#define RUBATO_SERVER_SHARD_SHARD_ANSWERS_H_

#include "proto/cluster.pb.h"
#include "server/shard/shard.h"

namespace rubato {

// The answer to shard_action::Closed.
proto::ShardClosed ClosedMessage(const Shard& shard);

// What the ledgers have counted so far.
proto::ShardReport ReportMessage(const Shard& shard);

// A block as it is now, for a snapshot.
proto::BlockState BlockStateMessage(const Shard& shard, int64_t block);

}  // namespace rubato

#endif  // RUBATO_SERVER_SHARD_SHARD_ANSWERS_H_
