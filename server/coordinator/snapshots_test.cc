#include "server/coordinator/snapshots.h"

#include "gtest/gtest.h"

namespace rubato {
namespace {

constexpr ShardId kFirst{0, 1}, kSecond{1, 1};
constexpr absl::Time kNow = absl::UnixEpoch();

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
  EXPECT_FALSE(snapshots.OnCopied(kFirst, Copied(id, 0), kNow));
  EXPECT_FALSE(snapshots.OnCopied(kFirst, Copied(id, 0), kNow)) << "for the second time";
  EXPECT_TRUE(snapshots.copying());
  EXPECT_TRUE(snapshots.OnCopied(kSecond, Copied(id, 1), kNow));
  EXPECT_EQ(snapshots.phase(), Snapshots::Phase::kWriting);
  EXPECT_EQ(snapshots.blocks().size(), 2u);
}

TEST(SnapshotsTest, AnswersToTheOneBeforeCountForNothing) {
  Snapshots snapshots;
  const uint32_t first =
      snapshots.Announce(4, Snapshots::Phase::kAnnounced, {kFirst}).snapshot().id();
  snapshots.Announce(6, Snapshots::Phase::kAnnounced, {kFirst});
  EXPECT_FALSE(snapshots.OnCopied(kFirst, Copied(first, 0), kNow));
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

proto::PartWritten Part(uint32_t id, proto::PartWritten::State state, uint32_t checksum = 0) {
  proto::PartWritten part;
  part.set_id(id);
  part.set_state(state);
  if (state == proto::PartWritten::STATE_WRITTEN) part.add_checksums(checksum);
  return part;
}

class SnapshotPartsTest : public ::testing::Test {
 protected:
  SnapshotPartsTest() {
    snapshots_.SetPartsFolder("/parts");
    const proto::Snapshot asked =
        snapshots_.Announce(4, Snapshots::Phase::kAnnounced, {kFirst, kSecond}).snapshot();
    EXPECT_EQ(asked.parts_folder(), "/parts");
    id_ = asked.id();
  }

  Snapshots snapshots_;
  uint32_t id_ = 0;
};

TEST_F(SnapshotPartsTest, IsReadyWhenEachPartIsWrittenOrToBeRead) {
  EXPECT_FALSE(snapshots_.OnPart(kFirst, Part(id_, proto::PartWritten::STATE_WRITTEN), kNow))
      << "of what it has not copied";
  snapshots_.OnCopied(kFirst, Copied(id_, 0), kNow);
  EXPECT_TRUE(snapshots_.OnPart(kFirst, Part(id_, proto::PartWritten::STATE_WRITTEN, 7), kNow));
  EXPECT_FALSE(snapshots_.OnPart(kFirst, Part(id_, proto::PartWritten::STATE_UNSEEN), kNow))
      << "for the second time";
  EXPECT_FALSE(snapshots_.has_parts());
  snapshots_.OnCopied(kSecond, Copied(id_, 1), kNow);
  EXPECT_FALSE(snapshots_.has_parts());
  EXPECT_FALSE(snapshots_.OnPart(kSecond, Part(id_ + 1, proto::PartWritten::STATE_UNSEEN), kNow));
  EXPECT_TRUE(snapshots_.OnPart(kSecond, Part(id_, proto::PartWritten::STATE_UNSEEN), kNow));
  EXPECT_TRUE(snapshots_.has_parts());
  EXPECT_EQ(snapshots_.unseen(), std::vector<int>{1});
  EXPECT_TRUE(snapshots_.failure().ok());
  EXPECT_EQ(snapshots_.blocks().at(0).checksums(0), 7u);
  EXPECT_EQ(snapshots_.blocks().at(1).checksums_size(), 0);
}

TEST_F(SnapshotPartsTest, APartThatCannotBeWrittenIsTheFailureOfAll) {
  snapshots_.OnCopied(kFirst, Copied(id_, 0), kNow);
  snapshots_.OnCopied(kSecond, Copied(id_, 1), kNow);
  proto::PartWritten failed = Part(id_, proto::PartWritten::STATE_FAILED);
  failed.set_reason("the disk is full");
  snapshots_.OnPart(kSecond, failed, kNow);
  EXPECT_FALSE(snapshots_.has_parts()) << "the first still writes";
  snapshots_.OnPart(kFirst, Part(id_, proto::PartWritten::STATE_WRITTEN), kNow);
  EXPECT_TRUE(snapshots_.has_parts());
  EXPECT_EQ(snapshots_.failure().message(), "shard 1 cannot write its part: the disk is full");
}

TEST_F(SnapshotPartsTest, PartsOfWhichNothingIsHeardAreRead) {
  snapshots_.OnCopied(kFirst, Copied(id_, 0), kNow);
  EXPECT_FALSE(snapshots_.GivesUpOnParts(kNow + absl::Hours(1))) << "not all have copied";
  snapshots_.OnCopied(kSecond, Copied(id_, 1), kNow);
  snapshots_.OnPart(kFirst, Part(id_, proto::PartWritten::STATE_WRITTEN), kNow);
  snapshots_.OnPart(kSecond, Part(id_, proto::PartWritten::STATE_WRITING), kNow + absl::Minutes(1));
  EXPECT_FALSE(snapshots_.GivesUpOnParts(kNow + absl::Minutes(2.9)));
  EXPECT_FALSE(snapshots_.has_parts());
  EXPECT_TRUE(snapshots_.GivesUpOnParts(kNow + absl::Minutes(3)));
  EXPECT_TRUE(snapshots_.has_parts());
  EXPECT_EQ(snapshots_.silent(), std::vector<int>{1});
  EXPECT_TRUE(snapshots_.unseen().empty());
  EXPECT_FALSE(snapshots_.GivesUpOnParts(kNow + absl::Minutes(9)));
}

}  // namespace
}  // namespace rubato
