#include "server/shard/block_store.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "common/base/status.h"
#include "common/space/initialize.h"

namespace rubato {
namespace {

// Draws the values [range.begin, range.end) of the flat vector.
void Initialize(const proto::Layout& layout, uint64_t seed, Range range, absl::Span<float> out) {
  int64_t begin = 0;
  for (const proto::Parameter& parameter : layout.parameters()) {
    const int64_t end = begin + ValueCount(parameter);
    const int64_t from = std::max(begin, range.begin);
    const int64_t to = std::min(end, range.end);
    if (from < to) {
      InitializeRange(parameter, seed, from - begin, out.subspan(from - range.begin, to - from));
    }
    begin = end;
  }
}

}  // namespace

absl::StatusOr<BlockStore> BlockStore::Create(const Placement& placement, int shard,
                                              const proto::Layout& layout, uint64_t seed, int slots,
                                              bool spares, const BlockMemory& memory) {
  const Range owned = placement.Blocks(shard);
  const int64_t bytes = placement.Values(shard).size() * (1 + slots) * int64_t{sizeof(float)};
  const bool copies = bytes <= memory.copied;
  BlockStore store(owned.begin, spares, copies, memory);
  const int64_t block_values =
      owned.empty() ? 0 : placement.space().BlockValues(owned.begin).size();
  // Those in use, and as many as a snapshot keeps of them. Copies of parameters lie with the slots:
  // nobody borrows them.
  memory.parameters->Plan(block_values, (1 + spares + !copies) * owned.size());
  memory.slots->Plan(block_values, (2 * slots + copies) * owned.size());
  for (int64_t index = owned.begin; index < owned.end; ++index) {
    const Range values = placement.space().BlockValues(index);
    Block block;
    std::vector<std::shared_ptr<FloatBuffer>> buffers;
    for (int i = 0; i < 1 + spares + slots; ++i) {
      // Of a pool, to which one comes back that a snapshot has kept: else the next snapshot's
      // copies would be touched for the first time again.
      absl::StatusOr<std::shared_ptr<FloatBuffer>> buffer =
          (i <= int{spares} ? memory.parameters : memory.slots)->Take(values.size());
      if (!buffer.ok()) {
        return absl::ResourceExhaustedError(absl::StrFormat(
            "no memory for shard %d: %d parameters with %d optimizer slots each need %d bytes",
            shard, placement.Values(shard).size(), slots,
            placement.Values(shard).size() * (1 + spares + slots) * sizeof(float)));
      }
      const absl::Span<float> zeroes = (*buffer)->values();
      std::fill(zeroes.begin(), zeroes.end(), 0.0F);
      buffers.push_back(*std::move(buffer));
    }
    block.current = buffers[0];
    if (spares) block.spare = buffers[1];
    block.slots.assign(buffers.begin() + 1 + spares, buffers.end());
    for (const auto& slot : block.slots) block.slot_views.push_back(slot->values());
    block.slots_before.resize(slots);
    Initialize(layout, seed, values, block.current->values());
    store.blocks_.push_back(std::move(block));
  }
  return store;
}

std::vector<std::shared_ptr<const FloatBuffer>> BlockStore::Snapshot(int64_t block) const {
  const Block& target = at(block);
  std::vector<std::shared_ptr<const FloatBuffer>> kept = {target.current};
  kept.insert(kept.end(), target.slots.begin(), target.slots.end());
  if (!copies_) return kept;
  for (std::shared_ptr<const FloatBuffer>& buffer : kept) {
    absl::StatusOr<std::shared_ptr<FloatBuffer>> copy = memory_.slots->Take(BlockSize(block));
    RUBATO_CHECK(copy.ok());  // as in TakeSpare
    std::copy(buffer->values().begin(), buffer->values().end(), (*copy)->values().begin());
    buffer = *std::move(copy);
  }
  return kept;
}

void BlockStore::Restore(int64_t block, int slot, const ReceivedValues& values) {
  Block& target = at(block);
  const absl::Span<float> out =
      slot == 0 ? target.current->values() : target.slots[slot - 1]->values();
  values.CopyTo(out);
}

BlockStore::SlotViews BlockStore::WritableSlots(int64_t block) {
  Block& target = at(block);
  for (size_t i = 0; i < target.slots.size(); ++i) {
    if (target.slots[i].use_count() == 1) continue;
    absl::StatusOr<std::shared_ptr<FloatBuffer>> fresh = memory_.slots->Take(BlockSize(block));
    RUBATO_CHECK(fresh.ok());  // as in TakeSpare
    target.slots_before[i] = std::exchange(target.slots[i], *std::move(fresh));
    target.slot_views[i] = target.slots[i]->values();
  }
  std::atomic_thread_fence(std::memory_order_acquire);  // after what the last readers did
  return {target.slot_views, target.slots_before};
}

std::shared_ptr<FloatBuffer> BlockStore::TakeSpare(int64_t block) {
  std::shared_ptr<FloatBuffer> spare = std::move(at(block).spare);
  at(block).spare = nullptr;
  if (spare != nullptr && spare.use_count() == 1) {
    std::atomic_thread_fence(std::memory_order_acquire);  // after what its last reader did
    return spare;
  }
  absl::StatusOr<std::shared_ptr<FloatBuffer>> fresh = memory_.parameters->Take(BlockSize(block));
  RUBATO_CHECK(fresh.ok());  // one block: a process that cannot get it cannot go on
  return *std::move(fresh);
}

std::shared_ptr<FloatBuffer> BlockStore::TakeWritable(int64_t block) {
  const std::shared_ptr<FloatBuffer>& current = at(block).current;
  if (current.use_count() > 1) return TakeSpare(block);
  std::atomic_thread_fence(std::memory_order_acquire);
  if (!spares_) at(block).spare = nullptr;
  return current;
}

void BlockStore::Publish(int64_t block, std::shared_ptr<FloatBuffer> next) {
  Block& target = at(block);
  for (std::shared_ptr<FloatBuffer>& before : target.slots_before) before = nullptr;
  if (next != target.current) target.spare = std::exchange(target.current, std::move(next));
}

}  // namespace rubato
