// Encoded versions of blocks, for workers that pull with a codec: each version is encoded once, for
// all workers.
#ifndef RUBATO_SERVER_SHARD_CODED_BLOCKS_H_
#define RUBATO_SERVER_SHARD_CODED_BLOCKS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "common/frames/codec.h"
#include "common/frames/payload.h"

namespace rubato {

class CodedBlocks {
 public:
  // `values`, which are version `version` of the block, in `codec`, which draws nothing. Kept until
  // two later versions have been asked for.
  Payload Get(int64_t block, int64_t version, Codec codec, absl::Span<const float> values);

 private:
  struct Coded {
    int64_t version = -1;
    Codec codec = Codec::kFloat32;
    std::shared_ptr<std::vector<char>> bytes;
  };
  // By block: in sync the one before the current version may still be asked for.
  absl::flat_hash_map<int64_t, Coded[2]> blocks_;
};

}  // namespace rubato

#endif  // RUBATO_SERVER_SHARD_CODED_BLOCKS_H_
