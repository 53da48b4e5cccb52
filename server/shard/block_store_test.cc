#include "server/shard/block_store.h"

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "common/base/status_matchers.h"
#include "common/space/placement.h"
#include "gtest/gtest.h"
#include "proto/layout.pb.h"

namespace rubato {
namespace {

constexpr int kSlots = 2;
constexpr int kBlocks = 3;  // the last is shorter

class BlockStoreTest : public ::testing::Test {
 protected:
  BlockStoreTest() { Create(/*copied=*/0); }
  // Snapshots of at most `copied` bytes are copied.
  void Create(int64_t copied) {
    memory_ = BlockMemory(nullptr);
    memory_.copied = copied;
    proto::Layout layout;
    layout.add_parameters()->add_shape(40);
    auto store = BlockStore::Create(Placement::Even(FlatSpace(40, 16), 1), /*shard=*/0, layout,
                                    /*seed=*/1, kSlots, /*spares=*/true, memory_);
    RUBATO_EXPECT_OK(store);
    store_.emplace(*std::move(store));
    for (BufferPool* pool : {memory_.parameters.get(), memory_.slots.get()}) {
      pool->Fill([] { return false; });
    }
  }

  void Step() {
    for (int64_t block = 0; block < kBlocks; ++block) {
      store_->WritableSlots(block);
      store_->Publish(block, store_->TakeSpare(block));
    }
  }

  BlockMemory memory_{nullptr};
  std::optional<BlockStore> store_;
};

// Memory that is touched for the first time holds a step up.
TEST_F(BlockStoreTest, NoSnapshotNeedsMemoryThatWasNotMadeBeforehand) {
  for (int snapshot = 0; snapshot < 4; ++snapshot) {
    EXPECT_EQ(memory_.parameters->spare(), size_t{kBlocks}) << snapshot;
    EXPECT_EQ(memory_.slots->spare(), size_t{kSlots * kBlocks}) << snapshot;
    std::vector<std::shared_ptr<const FloatBuffer>> kept;
    for (int64_t block = 0; block < kBlocks; ++block) {
      kept.push_back(store_->Current(block));
      for (const auto& slot : store_->Slots(block)) kept.push_back(slot);
    }
    for (int step = 0; step < 3; ++step) Step();
    EXPECT_EQ(memory_.parameters->spare(), 0u) << snapshot;
    EXPECT_EQ(memory_.slots->spare(), 0u) << snapshot;
  }
}

// Training goes on where it was, in memory that caches and workers know.
TEST_F(BlockStoreTest, ASmallSnapshotIsACopyForWhichMemoryWasMadeBeforehand) {
  constexpr int64_t kBytes = 40 * (1 + kSlots) * sizeof(float);
  Create(kBytes - 1);
  EXPECT_EQ(store_->Snapshot(0)[0], store_->Current(0));
  EXPECT_EQ(store_->Snapshot(0)[1], store_->Slots(0)[0]);

  Create(kBytes);
  for (float step = 0; step < 3; ++step) {
    const float* const place = store_->Current(2)->values().data();
    EXPECT_EQ(memory_.parameters->spare(), 0u);
    EXPECT_EQ(memory_.slots->spare(), size_t{(1 + kSlots) * kBlocks});
    std::vector<std::vector<std::shared_ptr<const FloatBuffer>>> kept;
    for (int64_t block = 0; block < kBlocks; ++block) kept.push_back(store_->Snapshot(block));
    EXPECT_EQ(memory_.slots->spare(), 0u);
    for (int i = 0; i < 2; ++i) {  // back to the same place
      const BlockStore::SlotViews slots = store_->WritableSlots(2);
      EXPECT_EQ(slots.from[1], nullptr) << "is updated elsewhere";
      slots.to[1][0] = step + 1;
      std::shared_ptr<FloatBuffer> next = store_->TakeSpare(2);
      next->values()[0] = step + 1;
      store_->Publish(2, std::move(next));
    }
    EXPECT_EQ(store_->Current(2)->values().data(), place);
    EXPECT_EQ(store_->Current(2)->values()[0], step + 1);
    ASSERT_EQ(kept[2].size(), size_t{1 + kSlots});
    EXPECT_EQ(kept[2][0]->values()[0], step);
    EXPECT_EQ(kept[2][2]->values()[0], step);
  }
}

// What a snapshot keeps is not written; and it may let go of it before the update has read it.
TEST_F(BlockStoreTest, SlotsThatAreReadAreUpdatedElsewhere) {
  for (const absl::Span<float> slot : store_->WritableSlots(0).to) slot[0] = 5;
  store_->Publish(0, store_->TakeSpare(0));
  std::shared_ptr<const FloatBuffer> kept = store_->Slots(0)[1];

  const BlockStore::SlotViews slots = store_->WritableSlots(0);
  EXPECT_EQ(slots.from[0], nullptr);
  ASSERT_EQ(slots.from[1], kept);
  EXPECT_NE(slots.to[1].data(), kept->values().data());
  slots.to[1][0] = 6;
  EXPECT_EQ(kept->values()[0], 5);
  kept = nullptr;
  std::vector<std::shared_ptr<FloatBuffer>> others;
  while (memory_.slots->spare() > 0) others.push_back(*memory_.slots->Take(16));
  for (const auto& other : others) EXPECT_NE(slots.from[1], other);
  store_->Publish(0, store_->TakeSpare(0));
  EXPECT_EQ(memory_.slots->spare(), 1u);
  EXPECT_EQ(std::as_const(*store_->Slots(0)[1]).values()[0], 6);
}

}  // namespace
}  // namespace rubato
