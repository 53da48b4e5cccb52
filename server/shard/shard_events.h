// What enters a shard and what comes of it, as messages of proto/record.proto.
#ifndef RUBATO_SERVER_SHARD_SHARD_EVENTS_H_
#define RUBATO_SERVER_SHARD_SHARD_EVENTS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/wire/frame.h"
#include "proto/cluster.pb.h"
#include "proto/record.pb.h"

namespace rubato {

proto::ShardEvent EventOf(const proto::CoordinatorMessage& message);
proto::ShardEvent EventOf(uint64_t stream, const Frame& frame);
proto::ShardEvent StreamGone(uint64_t stream);

// The block has another version, of these floats.
proto::ShardOutcome Updated(int64_t block, int64_t version, absl::Span<const float> parameters,
                            absl::Span<const absl::Span<float>> slots);
proto::ShardOutcome Sent(uint64_t stream, const Frame& frame);
proto::ShardOutcome Said(const proto::PeerMessage& message);
proto::ShardOutcome Refused(const absl::Status& status);

// A checksum of the bits of floats that follow those with the checksum `before`.
uint32_t BitsOf(absl::Span<const float> values, uint32_t before = 0);

}  // namespace rubato

#endif  // RUBATO_SERVER_SHARD_SHARD_EVENTS_H_
