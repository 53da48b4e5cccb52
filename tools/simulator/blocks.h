// How the parameters are cut in a simulation, and what a block weighs on the wire.
#ifndef RUBATO_TOOLS_SIMULATOR_BLOCKS_H_
#define RUBATO_TOOLS_SIMULATOR_BLOCKS_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/flat_space.h"
#include "common/wire/frame.h"

namespace rubato {

struct Blocks {
  FlatSpace space;
  std::vector<int64_t> bytes;  // by block: of a message with its values

  // As in a real run.
  static Blocks Real(const FlatSpace& space) {
    Blocks blocks{space, {}};
    for (int64_t block = 0; block < space.blocks(); ++block) {
      blocks.bytes.push_back(kFrameHeaderBytes + space.BlockValues(block).size() * 4);
    }
    return blocks;
  }

  // One block stands for all that a shard owns, with the bytes of them all.
  static Blocks OneForEachShard(const FlatSpace& space) {
    const Blocks real = Real(space);
    const int64_t owners = std::min<int64_t>(space.blocks(), space.shards());
    Blocks blocks{FlatSpace(owners, 1, space.shards()), std::vector<int64_t>(owners)};
    for (int shard = 0; shard < space.shards(); ++shard) {
      const Range owned = space.ShardBlocks(shard);
      for (int64_t block = owned.begin; block < owned.end; ++block) {
        blocks.bytes[blocks.space.ShardBlocks(shard).begin] += real.bytes[block];
      }
    }
    return blocks;
  }
};

}  // namespace rubato

#endif  // RUBATO_TOOLS_SIMULATOR_BLOCKS_H_
