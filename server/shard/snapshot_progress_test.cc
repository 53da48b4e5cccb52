#include "server/shard/snapshot_progress.h"

#include "gtest/gtest.h"

namespace rubato {
namespace {

TEST(SnapshotProgressTest, LacksNothingBeforeTheFirst) {
  EXPECT_FALSE(SnapshotProgress({3, 5}).Lacks(4));
}

TEST(SnapshotProgressTest, IsWholeWhenEachBlockHasBeenAddedAfterItBegan) {
  SnapshotProgress snapshot({3, 5});
  for (const uint32_t id : {1, 4}) {
    snapshot.Begin(id, 7);
    snapshot.Add(4);
    EXPECT_FALSE(snapshot.Lacks(4));
    EXPECT_TRUE(snapshot.Lacks(3));
    EXPECT_FALSE(snapshot.IsWhole());
    snapshot.Add(3);
    EXPECT_TRUE(snapshot.IsWhole());
  }
}

TEST(SnapshotProgressTest, ANewOneTakesThePlaceOfOneThatIsNotWhole) {
  SnapshotProgress snapshot({0, 2});
  snapshot.Begin(1, 5);
  snapshot.Add(0);
  snapshot.Begin(2, 9);
  EXPECT_EQ(snapshot.step(), 9);
  EXPECT_TRUE(snapshot.Lacks(0));
  snapshot.Add(0);
  EXPECT_FALSE(snapshot.IsWhole());
}

TEST(SnapshotProgressTest, OfNoBlocksIsWholeAtOnce) {
  SnapshotProgress snapshot({2, 2});
  snapshot.Begin(1, 0);
  EXPECT_TRUE(snapshot.IsWhole());
}

}  // namespace
}  // namespace rubato
