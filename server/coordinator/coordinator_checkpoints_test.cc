// When checkpoints are taken.
#include "server/coordinator/coordinator_fixture.h"

namespace rubato {
namespace {

TEST_F(CoordinatorTest, ScheduledCheckpointsAreAnnouncedAheadOneAfterTheOther) {
  Start("checkpoint { every { steps: 2 } }");
  Begin();
  EXPECT_LAST_TO_SHARDS(has_snapshot());
  const proto::Snapshot first = sent_[1].back().snapshot();
  EXPECT_EQ(first.step(), 2);
  Receive(kOwnShard, Copied(first.id(), 0, 2));
  EXPECT_THAT(manifests_, IsEmpty());
  Receive(1, Copied(first.id(), 1, 2));
  ASSERT_EQ(manifests_.size(), 1u);
  EXPECT_EQ(manifests_[0].step(), 2);
  EXPECT_EQ(manifests_[0].blocks_size(), 2);
  // The next is announced when this one has been written, which says that, too; a failure to write
  // does not end the job.
  const size_t before = sent_[1].size();
  Checkpointed(first.id(), absl::ResourceExhaustedError("disk full"));
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("disk full; training goes on")));
  EXPECT_FALSE(end_.has_value());
  EXPECT_EQ(sent_[1].back().snapshot().step(), 4);
  EXPECT_EQ(sent_[1].size(), before + 1);
}

// They are other parameters than the checkpoint's.
TEST_F(CoordinatorTest, ACheckpointTellsOfWhichParametersItsTestIs) {
  Start("checkpoint { every { steps: 4 } }");
  Begin();
  Receive(2, Evaluated(3));
  ASSERT_TRUE(sent_[1].back().has_snapshot());
  const proto::Snapshot snapshot = sent_[1].back().snapshot();
  Receive(kOwnShard, Copied(snapshot.id(), 0, 4));
  Receive(1, Copied(snapshot.id(), 1, 4));
  ASSERT_EQ(manifests_.size(), 1u);
  EXPECT_EQ(manifests_[0].eval_samples(), 20) << "after an epoch, of three steps";
}

TEST_F(CoordinatorTest, AnOutageIsWarnedOfOnceAndTheNextOneAgain) {
  Start("checkpoint { every { steps: 1 } }");
  Begin();
  const auto write = [&](const absl::StatusOr<std::string>& path) {
    const proto::Snapshot snapshot = sent_[1].back().snapshot();
    Receive(kOwnShard, Copied(snapshot.id(), 0, snapshot.step()));
    Receive(1, Copied(snapshot.id(), 1, snapshot.step()));
    Checkpointed(snapshot.id(), path);
    return snapshot.step();
  };
  EXPECT_EQ(write(absl::ResourceExhaustedError("disk full")), 1);
  EXPECT_EQ(write(absl::ResourceExhaustedError("disk full")), 2);
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("no checkpoint of step 1: disk full")));
  write(std::string("step-3"));
  write(absl::UnavailableError("no disk"));
  ASSERT_EQ(warnings_.size(), 2u);
  EXPECT_THAT(warnings_[1], HasSubstr("no checkpoint of step 4: no disk; training goes on, the "
                                      "last good one is step-3"));
}

class CoordinatorGoneTest : public CoordinatorTest {
 protected:
  // The warnings of a run whose folder is removed after its first checkpoint.
  const std::vector<std::string>& Warnings() {
    Start("checkpoint { every { steps: 1 } }");
    Begin();
    const absl::StatusOr<std::string> there = "step-1", gone = absl::NotFoundError("gone");
    for (const auto& path : {there, gone}) {
      const proto::Snapshot snapshot = sent_[1].back().snapshot();
      Receive(kOwnShard, Copied(snapshot.id(), 0, snapshot.step()));
      Receive(1, Copied(snapshot.id(), 1, snapshot.step()));
      Checkpointed(snapshot.id(), path);
    }
    return warnings_;
  }
};

TEST_F(CoordinatorGoneTest, NoCheckpointInTheFolderIsNamed) {
  EXPECT_THAT(Warnings(), ElementsAre("no checkpoint of step 2: gone; training goes on"));
}

TEST_F(CoordinatorGoneTest, TheOneOfAnotherRunIsNamed) {
  begin_.state.set_begun_from("another/step-7");
  EXPECT_THAT(Warnings(), ElementsAre("no checkpoint of step 2: gone; training goes on, the last "
                                      "good one is another/step-7"));
}

TEST_F(CoordinatorTest, OnArrivalAnOutageIsOfAContribution) {
  Start("consistency { mode { mode: NAME_ASYNC } }");
  Begin();
  proto::PeerMessage work;
  work.mutable_work_request()->set_count(1);
  Receive(2, work);  // contribution 0
  RUBATO_ASSERT_OK(Handle(coordinator::CheckpointRequested{}));
  const uint32_t id = sent_[1].back().snapshot().id();
  Receive(kOwnShard, Copied(id, 0, 1));
  Receive(1, Copied(id, 1, 1));
  Checkpointed(id, absl::ResourceExhaustedError("disk full"));
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("no checkpoint of contribution 1: disk full")));
}

TEST_F(CoordinatorTest, ACheckpointIsTakenOnceInSoMuchTimeOfTheTraining) {
  Start(
      "cluster { lease: 3600 stall_timeout: 3600 } checkpoint { every { time: 10 } } "
      "consistency { mode { mode: NAME_ASYNC } }");
  now_ += absl::Seconds(30);  // until all are here
  Begin();
  const auto snapshot_after = [&](absl::Duration time) {
    now_ += time;
    const size_t before = sent_[1].size();
    Tick();
    return sent_[1].size() > before ? sent_[1].back().snapshot().id() : 0;
  };
  EXPECT_EQ(snapshot_after(absl::Seconds(0)), 0u);
  EXPECT_EQ(snapshot_after(absl::Seconds(9.9)), 0u);
  EXPECT_EQ(snapshot_after(absl::Seconds(0.1)), 1u);
  Receive(kOwnShard, Copied(1, 0, 1));
  Receive(1, Copied(1, 1, 1));
  Checkpointed(1, std::string("the first"));
  EXPECT_EQ(snapshot_after(absl::Seconds(9.9)), 0u);
  EXPECT_EQ(snapshot_after(absl::Seconds(0.1)), 2u);
}

TEST_F(CoordinatorTest, InSyncACheckpointByTheClockIsOfTheStepAfterTheHighest) {
  Start("cluster { lease: 3600 stall_timeout: 3600 } checkpoint { every { time: 10 } }");
  Begin();
  EXPECT_FALSE(sent_[1].back().has_snapshot()) << "no step is known ahead";
  now_ += absl::Seconds(10);
  Tick();
  Close(2, 3);
  const proto::CoordinatorMessage& before = sent_[1][sent_[1].size() - 2];
  ASSERT_TRUE(before.has_snapshot());
  EXPECT_EQ(before.snapshot().step(), 4);
}

TEST_F(CoordinatorTest, ASnapshotWhoseStepHasPassedIsTakenLater) {
  Start("checkpoint { every { steps: 1 } }");
  Begin();
  proto::PeerMessage missed;
  missed.mutable_snapshot_missed()->set_id(sent_[1].back().snapshot().id());
  missed.mutable_snapshot_missed()->set_version(3);
  Receive(1, missed);
  EXPECT_EQ(sent_[1].back().snapshot().step(), 4);
}

// Else what was trained since the last one is lost if a server leaves meanwhile.
TEST_F(CoordinatorTest, APausedJobTakesACheckpointOnDemandAndNoneByTheClock) {
  Start(
      "cluster { lease: 3600 stall_timeout: 3600 workers { min: 2 } } checkpoint { every { time: "
      "10 } }");
  Begin();
  Gone(3);
  Close(2, 2);
  ASSERT_EQ(coordinator_->Status(now_).state(), "paused");
  now_ += absl::Seconds(60);
  Tick();
  EXPECT_TRUE(sent_[1].back().has_close());
  RUBATO_ASSERT_OK(Handle(coordinator::CheckpointRequested{}));
  ASSERT_TRUE(sent_[1].back().has_snapshot());
  const proto::Snapshot snapshot = sent_[1].back().snapshot();
  EXPECT_EQ(snapshot.step(), 2);
  Receive(kOwnShard, Copied(snapshot.id(), 0, 2));
  Receive(1, Copied(snapshot.id(), 1, 2));
  ASSERT_EQ(manifests_.size(), 1u);
  EXPECT_EQ(manifests_[0].step(), 2);
  Checkpointed(snapshot.id(), std::string("step-2"));
  EXPECT_EQ(coordinator_->Status(now_).state(), "paused");
}

// What has come by one step since it was closed, or stands at two, has one when it goes on.
TEST_F(CoordinatorTest, APausedJobWhoseBlocksDifferTakesNoneUntilItGoesOn) {
  Start("cluster { lease: 3600 stall_timeout: 3600 workers { min: 2 } }");
  Begin();
  Gone(3);
  Close(2, 2);
  RUBATO_ASSERT_OK(Handle(coordinator::CheckpointRequested{}));
  ASSERT_TRUE(sent_[1].back().has_snapshot());
  proto::PeerMessage missed;
  missed.mutable_snapshot_missed()->set_id(sent_[1].back().snapshot().id());
  missed.mutable_snapshot_missed()->set_version(3);
  const size_t before = sent_[1].size();
  Receive(1, missed);
  Tick();
  EXPECT_EQ(sent_[1].size(), before) << "not again and again";
  EXPECT_TRUE(coordinator_->wants_checkpoint());
  Receive(4, Worker());
  const proto::CoordinatorMessage& taken = sent_[1][sent_[1].size() - 2];
  ASSERT_TRUE(taken.has_snapshot());
  EXPECT_EQ(taken.snapshot().step(), 3);
}

// Who asks while another is being written gets one of later parameters.
TEST_F(CoordinatorTest, ACheckpointThatWasTakenBeforeItWasAskedForIsNotTheOne) {
  Start("consistency { mode { mode: NAME_ASYNC } }");
  Begin();
  RUBATO_ASSERT_OK(Handle(coordinator::CheckpointRequested{}));
  EXPECT_FALSE(coordinator_->wants_checkpoint());
  Receive(kOwnShard, Copied(1, 0, 1));
  Receive(1, Copied(1, 1, 1));
  ASSERT_THAT(snapshots_, ElementsAre(1));
  RUBATO_ASSERT_OK(Handle(coordinator::CheckpointRequested{}));
  EXPECT_TRUE(coordinator_->wants_checkpoint());
  Checkpointed(1, std::string("older"));
  EXPECT_EQ(sent_[1].back().snapshot().id(), 2u);
  EXPECT_FALSE(coordinator_->wants_checkpoint());
}

// The shards stand still at different steps: the snapshot is of one that all can reach, and they
// hear of it before they go on.
TEST_F(CoordinatorTest, ACheckpointOnDemandIsOfTheStepAfterTheHighest) {
  Start();
  Begin();
  RUBATO_ASSERT_OK(Handle(coordinator::CheckpointRequested{}));
  Close(2, 3);
  EXPECT_LAST_TO_SHARDS(has_view());
  const proto::CoordinatorMessage& before = sent_[1][sent_[1].size() - 2];
  ASSERT_TRUE(before.has_snapshot());
  EXPECT_EQ(before.snapshot().step(), 4);
  EXPECT_EQ(sent_[2].back().view().number(), 2u);
}

TEST_F(CoordinatorTest, ShardsLetGoOfASnapshotThatIsWritten) {
  Start("consistency { mode { mode: NAME_ASYNC } }");
  Begin();
  RUBATO_ASSERT_OK(Handle(coordinator::CheckpointRequested{}));
  Receive(kOwnShard, Copied(1, 0, 1));
  Receive(1, Copied(1, 1, 1));
  EXPECT_LAST_TO_SHARDS(has_snapshot());
  Checkpointed(1, std::string("path"));
  EXPECT_LAST_TO_SHARDS(has_release_snapshot());
  EXPECT_EQ(sent_[1].back().release_snapshot().id(), 1u);
  EXPECT_EQ(coordinator_->Status(now_).last_checkpoint(), "path");
}

}  // namespace
}  // namespace rubato
