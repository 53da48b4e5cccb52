// A shard's recording, run again through the real engine.
#ifndef RUBATO_TOOLS_REPLAY_SHARD_REPLAY_H_
#define RUBATO_TOOLS_REPLAY_SHARD_REPLAY_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/space/flat_space.h"
#include "proto/record.pb.h"
#include "server/shard/shard_protocol.h"
#include "tools/replay/replayed_part.h"

namespace rubato {

struct ShardReplay {
  ReplayedPart part;
  proto::RecordHeader header;
  uint32_t term = 0;  // of its views; 0: none has come
  int64_t updates = 0;
  Range blocks;  // none, if no view has come
  // The last version of each block.
  std::map<int64_t, std::vector<float>> parameters;
  // BitsOf what it was asked to send of a snapshot, by block and slot.
  std::map<uint32_t, std::map<std::pair<int64_t, uint32_t>, uint32_t>> snapshots;
};

// NotFound if there is none; InvalidArgument, in one sentence, if it is damaged. That something
// else comes of it is no error: see part.difference.
// `kept` is what the recording before it has ended with, if anything; then, what this one has.
absl::StatusOr<ShardReplay> ReplayShard(const std::string& path, int shard,
                                        std::optional<KeptShard>* kept);

}  // namespace rubato

#endif  // RUBATO_TOOLS_REPLAY_SHARD_REPLAY_H_
