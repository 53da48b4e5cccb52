// What enters a shard and what comes of it, as messages of proto/record.proto: how a run is
// recorded, and how a recording is replayed.
#ifndef RUBATO_SERVER_SHARD_SHARD_RECORD_H_
#define RUBATO_SERVER_SHARD_SHARD_RECORD_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "proto/record.pb.h"
#include "server/run/recording.h"
#include "server/shard/shard_protocol.h"

namespace rubato {

// As shard->Handle(event); the event is recorded first if `recording` is not null.
absl::Status HandleAndRecord(const ShardEvent& event, ShardProtocol* shard,
                             RecordingWriter* recording);
// For such a shard: records what comes of the event on its way to `sink`.
ShardProtocol::Sink RecordingSink(ShardProtocol::Sink sink, RecordingWriter* recording);

// As it is recorded.
proto::ShardOutcome ToProto(const ShardOutcome& outcome);

// Repeats a recorded event, of which `values` are a frame's. InvalidArgument if it is damaged.
absl::Status Replay(const proto::ShardEvent& event, absl::Span<const float> values,
                    ShardProtocol* shard);

// A checksum of the bits of floats that follow those with the checksum `before`.
uint32_t BitsOf(absl::Span<const float> values, uint32_t before = 0);

}  // namespace rubato

#endif  // RUBATO_SERVER_SHARD_SHARD_RECORD_H_
