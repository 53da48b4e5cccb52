// What enters a shard (server/shard/shard_protocol.h) and what comes of it.
#ifndef RUBATO_SERVER_SHARD_SHARD_EVENT_H_
#define RUBATO_SERVER_SHARD_SHARD_EVENT_H_

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/frames/frame.h"
#include "common/frames/payload.h"
#include "common/frames/received_values.h"
#include "common/space/flat_space.h"
#include "proto/cluster.pb.h"

namespace rubato {

// Borrowed for the call that handles it.
namespace shard_event {

struct Message {
  const proto::CoordinatorMessage& message;
};
struct Arrival {
  uint64_t stream;
  const Frame& frame;
  const ReceivedValues& values;
};
struct StreamGone {
  uint64_t stream;
};
// The change of `block` that took its time (ShardValues::TakesTime) may be made now.
struct ChangeDue {
  int64_t block;
};

}  // namespace shard_event

using ShardEvent = std::variant<shard_event::Message, shard_event::Arrival, shard_event::StreamGone,
                                shard_event::ChangeDue>;

// A block as it was.
struct BlockCopy {
  proto::BlockState state;
  std::vector<Payload> values;  // parameters, then slots
};
using BlockCopies = std::map<int64_t, BlockCopy>;

namespace shard_outcome {

// A frame goes out on `stream`; `payload` keeps its values alive.
struct Sent {
  uint64_t stream;
  Frame frame;
  Payload payload;
};
// To the coordinator.
struct Said {
  proto::PeerMessage message;
};
// An optimizer's step has made `version` of the block. The values are borrowed for the call.
struct Updated {
  int64_t block;
  int64_t version;
  absl::Span<const float> parameters;
  absl::Span<const absl::Span<float>> slots;
};
// The frame is nonsense: its stream ends.
struct Refused {
  absl::Status status;
};
// The shard's part of a snapshot, to be written into subfolder `snapshot` of `folder` if that is
// there; the coordinator waits for proto::PartWritten. Borrowed for the call, but what the payloads
// own.
struct WritePart {
  uint32_t snapshot;
  const std::string& folder;
  const BlockCopies& blocks;
};
// The part is not wanted any more.
struct ForgetPart {
  uint32_t snapshot;
};
// The floats of the shard's blocks, to be read from the checkpoint at `path`, if that is there and
// has this digest, and given to the shard as frames of kind kRestore with this key. Else the
// coordinator waits for proto::ShardRestored.
struct ReadPart {
  const std::string& path;
  const std::string& digest;
  Range blocks;
  int slots;
  uint64_t restore_key;
};

}  // namespace shard_outcome

using ShardOutcome = std::variant<shard_outcome::Sent, shard_outcome::Said, shard_outcome::Updated,
                                  shard_outcome::Refused, shard_outcome::WritePart,
                                  shard_outcome::ForgetPart, shard_outcome::ReadPart>;

}  // namespace rubato

#endif  // RUBATO_SERVER_SHARD_SHARD_EVENT_H_
