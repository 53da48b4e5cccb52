#include "server/coordinator/snapshots.h"

#include "gtest/gtest.h"

namespace rubato {
namespace {

constexpr ShardId kFirst{0, 1}, kSecond{1, 1};

proto::SnapshotCopied Copied(uint32_t id, int64_t block) {
  proto::SnapshotCopied copied;
  copied.set_id(id);
  copied.add_blocks()->set_block(block);
  return copied;
}

TEST(SnapshotsTest, IsToBeWrittenWhenEachShardHasCopied) {
  Snapshots snapshots;
  const uint32_t id =
      snapshots.Announce(4, Snapshots::Phase::kAnnounced, {kFirst, kSecond}).snapshot().id();
  EXPECT_FALSE(snapshots.OnCopied(kFirst, Copied(id, 0)));
  EXPECT_FALSE(snapshots.OnCopied(kFirst, Copied(id, 0))) << "for the second time";
  EXPECT_TRUE(snapshots.copying());
  EXPECT_TRUE(snapshots.OnCopied(kSecond, Copied(id, 1)));
  EXPECT_EQ(snapshots.phase(), Snapshots::Phase::kWriting);
  EXPECT_EQ(snapshots.blocks().size(), 2u);
}

TEST(SnapshotsTest, AnswersToTheOneBeforeCountForNothing) {
  Snapshots snapshots;
  const uint32_t first =
      snapshots.Announce(4, Snapshots::Phase::kAnnounced, {kFirst}).snapshot().id();
  snapshots.Announce(6, Snapshots::Phase::kAnnounced, {kFirst});
  EXPECT_FALSE(snapshots.OnCopied(kFirst, Copied(first, 0)));
  proto::SnapshotMissed missed;
  missed.set_id(first);
  EXPECT_FALSE(snapshots.OnMissed(missed));
  EXPECT_TRUE(snapshots.copying());
}

TEST(SnapshotsTest, OneThatIsMissedIsUnderWayNoMore) {
  Snapshots snapshots;
  proto::SnapshotMissed missed;
  missed.set_id(snapshots.Announce(4, Snapshots::Phase::kAnnounced, {kFirst}).snapshot().id());
  EXPECT_TRUE(snapshots.OnMissed(missed));
  EXPECT_FALSE(snapshots.under_way());
  EXPECT_FALSE(snapshots.OnMissed(missed));
}

}  // namespace
}  // namespace rubato
