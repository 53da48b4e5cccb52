#include "server/shard/buffer_pool.h"

#include <set>

#include "common/base/status_matchers.h"
#include "common/wire/shared_arena.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

std::shared_ptr<FloatBuffer> TakeFrom(BufferPool& pool, int64_t size) {
  auto buffer = pool.Take(size);
  RUBATO_EXPECT_OK(buffer);
  return *std::move(buffer);
}

TEST(BufferPoolTest, ABufferComesBackWhenItsLastHolderLetsItGo) {
  const auto pool = std::make_shared<BufferPool>(nullptr);
  pool->Plan(/*size=*/100, /*count=*/0);
  std::shared_ptr<FloatBuffer> buffer = TakeFrom(*pool, 100);
  ASSERT_EQ(buffer->values().size(), 100u);
  float* const place = buffer->values().data();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(place) % 64, 0u);
  std::shared_ptr<const FloatBuffer> reader = buffer;
  buffer.reset();
  EXPECT_EQ(pool->spare(), 0u);
  EXPECT_NE(TakeFrom(*pool, 100)->values().data(), place) << "somebody reads it";
  reader.reset();
  EXPECT_EQ(pool->spare(), 2u);
  // A shorter block, the last one, may have any of them.
  std::set<float*> places;
  const auto first = TakeFrom(*pool, 7), second = TakeFrom(*pool, 100);
  for (const auto& taken : {first, second}) places.insert(taken->values().data());
  EXPECT_EQ(places.count(place), 1u);
  EXPECT_EQ(places.size(), 2u);
  EXPECT_EQ(first->values().size(), 7u);
}

TEST(BufferPoolTest, MakesAsManyAsArePlannedAndCountsThoseInUse) {
  const auto pool = std::make_shared<BufferPool>(nullptr);
  pool->Plan(10, 5);
  const auto taken = TakeFrom(*pool, 10);
  pool->Fill([] { return false; });
  EXPECT_EQ(pool->spare(), 4u);
  pool->Fill([] { return false; });
  EXPECT_EQ(pool->spare(), 4u);
}

TEST(BufferPoolTest, StopsWhenItIsTold) {
  const auto pool = std::make_shared<BufferPool>(nullptr);
  pool->Plan(10, 5);
  int asked = 0;
  pool->Fill([&] { return ++asked > 2; });
  EXPECT_EQ(pool->spare(), 2u);
  pool->Fill([] { return false; });
  EXPECT_EQ(pool->spare(), 5u);
}

TEST(BufferPoolTest, ANewPlanTakesNoOldBuffers) {
  const auto pool = std::make_shared<BufferPool>(nullptr);
  pool->Plan(10, 2);
  auto old = TakeFrom(*pool, 10);
  pool->Fill([] { return false; });
  pool->Plan(20, 3);
  EXPECT_EQ(pool->spare(), 0u);
  pool->Fill([] { return false; });
  old.reset();
  EXPECT_EQ(pool->spare(), 3u);
  EXPECT_EQ(TakeFrom(*pool, 20)->values().size(), 20u);
}

TEST(BufferPoolTest, LiesInTheArenaAndOutlivesThePoolsOwner) {
  const auto arena = SharedArena::Create();
  RUBATO_ASSERT_OK(arena);
  auto pool = std::make_shared<BufferPool>(*arena);
  pool->Plan(1000, 1);
  pool->Fill([] { return false; });
  const auto buffer = TakeFrom(*pool, 1000);
  pool.reset();
  buffer->values().front() = 1;
  const auto bytes = absl::MakeConstSpan(reinterpret_cast<const char*>(buffer->values().data()),
                                         1000 * sizeof(float));
  EXPECT_TRUE((*arena)->Find(bytes).has_value());
}

}  // namespace
}  // namespace rubato
