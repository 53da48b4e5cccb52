// How the parameters are divided into blocks in a simulation, and the size of each block on the
// wire.
#ifndef RUBATO_TOOLS_SIMULATOR_BLOCKS_H_
#define RUBATO_TOOLS_SIMULATOR_BLOCKS_H_

#include <cstdint>
#include <vector>

#include "common/frames/frame.h"
#include "common/space/job_codec.h"
#include "common/space/placement.h"
#include "proto/job.pb.h"

namespace rubato {

struct Blocks {
  Placement placement;
  // By block: of its values and a header; of the messages that push and pull it, by the job's
  // codecs (topk: when its warm-up is over).
  std::vector<int64_t> bytes, push_bytes, pull_bytes;
  // By block: those of the job that it stands for; empty: itself.
  std::vector<Range> real;

  // As in a real run of `job`.
  static Blocks Real(const proto::Job& job, const proto::Layout& layout) {
    const FlatSpace space = SpaceOf(job, layout);
    const int64_t trainable = TrainableCount(layout);
    Blocks blocks{Placement::Even(space, job.cluster().servers()), {}, {}, {}, {}};
    for (int64_t block = 0; block < space.blocks(); ++block) {
      const Range values = space.BlockValues(block);
      blocks.bytes.push_back(kFrameHeaderBytes + values.size() * 4);
      blocks.push_bytes.push_back(kFrameHeaderBytes + PushedBytes(job, values, trainable));
      blocks.pull_bytes.push_back(kFrameHeaderBytes + PulledBytes(job, values, trainable));
    }
    return blocks;
  }

  // One block stands for all that a shard owns, with the bytes of them all.
  static Blocks OneForEachShard(const proto::Job& job, const proto::Layout& layout) {
    const Blocks real = Real(job, layout);
    const int owners = real.placement.owners(), shards = real.placement.shards();
    const std::vector<int64_t> none(owners);
    Blocks blocks{Placement::Even(FlatSpace(owners, 1), shards), none, none, none, {}};
    blocks.real.resize(owners);
    for (int shard = 0; shard < shards; ++shard) {
      const Range owned = real.placement.Blocks(shard);
      if (!owned.empty()) blocks.real[blocks.placement.Blocks(shard).begin] = owned;
      for (int64_t block = owned.begin; block < owned.end; ++block) {
        const int64_t into = blocks.placement.Blocks(shard).begin;
        blocks.bytes[into] += real.bytes[block];
        blocks.push_bytes[into] += real.push_bytes[block];
        blocks.pull_bytes[into] += real.pull_bytes[block];
      }
    }
    return blocks;
  }
};

}  // namespace rubato

#endif  // RUBATO_TOOLS_SIMULATOR_BLOCKS_H_
