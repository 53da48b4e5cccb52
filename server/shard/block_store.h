// The floats of a shard: for each of its blocks the parameters at the current version, the
// optimizer's slots and one spare buffer. A new version is written to the spare buffer, since the
// current one may still be on its way to a worker; then the two are swapped. So parameters are sent
// directly from the block, without a copy.
#ifndef RUBATO_SERVER_SHARD_BLOCK_STORE_H_
#define RUBATO_SERVER_SHARD_BLOCK_STORE_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/frames/received_values.h"
#include "common/space/placement.h"
#include "proto/layout.pb.h"
#include "server/shard/buffer_pool.h"

namespace rubato {

class BlockStore {
 public:
  // The blocks of `shard`, at their initial values, with `slots` zeroed floats a parameter, and, if
  // `spares`, a spare buffer for each from the beginning. Steps need it; with several workers it
  // keeps memory from growing when one worker reads while another's update arrives.
  // ResourceExhausted, saying how much was asked for, if memory does not hold them. The pools of
  // `memory` are planned for a snapshot of all blocks.
  static absl::StatusOr<BlockStore> Create(const Placement& placement, int shard,
                                           const proto::Layout& layout, uint64_t seed, int slots,
                                           bool spares, const BlockMemory& memory);

  int64_t BlockSize(int64_t block) const { return at(block).current->values().size(); }
  std::shared_ptr<const FloatBuffer> Current(int64_t block) const { return at(block).current; }
  // The version before the current one, until TakeSpare is called. Null if there is none.
  std::shared_ptr<const FloatBuffer> Previous(int64_t block) const { return at(block).spare; }
  // The optimizer's slots. A slot that a reader holds is no longer written.
  absl::Span<const std::shared_ptr<FloatBuffer>> Slots(int64_t block) const {
    return at(block).slots;
  }
  // The slots of a block in an update: where to write each, and where to read it if it is not
  // updated in place because somebody else reads it (else null).
  struct SlotViews {
    absl::Span<const absl::Span<float>> to;
    absl::Span<const std::shared_ptr<FloatBuffer>> from;
  };
  // Before each update, which ends with Publish, and writes all of them.
  SlotViews WritableSlots(int64_t block);

  // What a snapshot keeps of a block, which is not written any more: its parameters and slots, of a
  // small shard (BlockMemory::copied) as copies. Else they are the buffers themselves, and training
  // goes on in others.
  std::vector<std::shared_ptr<const FloatBuffer>> Snapshot(int64_t block) const;

  // Overwrites the parameters (slot 0) or a slot of the optimizer (1…), before the first update. As
  // many values as the block has.
  void Restore(int64_t block, int slot, const ReceivedValues& values);

  // A buffer of the block's size for the caller to write: the spare one if nobody reads it any
  // more, else a new one.
  std::shared_ptr<FloatBuffer> TakeSpare(int64_t block);

  // The current version itself, to be overwritten, if nobody else reads it, else TakeSpare's.
  std::shared_ptr<FloatBuffer> TakeWritable(int64_t block);

  // Makes `next` the current version; the previous buffer, if it is another, becomes the spare.
  // Slots that were written elsewhere are no longer kept where they were.
  void Publish(int64_t block, std::shared_ptr<FloatBuffer> next);

  // Counts the current version as the next one too, so that it is the version before as well.
  void Republish(int64_t block) { at(block).spare = at(block).current; }

 private:
  struct Block {
    std::shared_ptr<FloatBuffer> current;
    std::shared_ptr<FloatBuffer> spare;  // may be null
    std::vector<std::shared_ptr<FloatBuffer>> slots;
    std::vector<absl::Span<float>> slot_views;
    std::vector<std::shared_ptr<FloatBuffer>> slots_before;  // null: updated in place
  };

  BlockStore(int64_t first_block, bool spares, bool copies, const BlockMemory& memory)
      : first_block_(first_block), spares_(spares), copies_(copies), memory_(memory) {}
  const Block& at(int64_t block) const { return blocks_[block - first_block_]; }
  Block& at(int64_t block) { return blocks_[block - first_block_]; }

  int64_t first_block_;
  bool spares_;
  bool copies_;  // what a snapshot keeps
  BlockMemory memory_;
  std::vector<Block> blocks_;
};

}  // namespace rubato

#endif  // RUBATO_SERVER_SHARD_BLOCK_STORE_H_
