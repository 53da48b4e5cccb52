// How a job ends.
#include <cmath>
#include <functional>

#include "server/coordinator/coordinator_fixture.h"

namespace rubato {
namespace {

proto::PeerMessage NotFinite() {
  proto::PeerMessage message;
  message.mutable_failure()->set_exit_code(1);
  message.mutable_failure()->set_reason("step 2: the gradient of x is not finite");
  message.mutable_failure()->set_non_finite(true);
  return message;
}

TEST_F(CoordinatorTest, EndsInOrderTestReportCollectStop) {
  Start();
  Begin();
  for (int64_t step = 0; step < 6; ++step) {
    now_ += absl::Seconds(1);
    const int64_t samples = step % 3 == 2 ? 1 : 2;  // the third of each epoch has 4 samples
    Receive(2, Computed(step, {0, 2}, 1, samples));
    Receive(3, Computed(step, {2, 4}, 1, samples));
  }
  Receive(2, Idle());
  EXPECT_FALSE(sent_[2].back().has_evaluation_request());
  Receive(3, Idle());
  RUBATO_ASSERT_OK(Handle(coordinator::StopRequested{absl::OkStatus(), "asked to"}));
  SaveLast();
  // The test at the end of the first epoch has not come yet.
  EXPECT_FALSE(sent_[2].back().has_evaluation_request());
  EXPECT_THAT(coordinator_->Status(now_).waits(),
              ElementsAre(HasSubstr("a test of earlier parameters waits for worker 0")));
  Receive(2, Evaluated(3));
  EXPECT_DOUBLE_EQ(lines_.back().epoch, 1);
  ASSERT_TRUE(sent_[2].back().has_evaluation_request());
  EXPECT_EQ(sent_[2].back().evaluation_request().step(), 6);

  // Who comes now waits for the end, and tests nothing.
  Receive(6, Worker());
  EXPECT_THAT(sent_[6], IsEmpty());
  EXPECT_THAT(warnings_, IsEmpty());

  proto::PeerMessage tested;
  tested.mutable_evaluation()->set_unit(6);
  tested.mutable_evaluation()->set_loss_sum(0);
  // A late test of before the end, and the last of the evaluated split, do not end the job.
  tested.mutable_evaluation()->set_samples(20);
  Receive(2, tested);
  EXPECT_EQ(lines_.back().kind, MetricsLine::Kind::kEval);
  EXPECT_EQ(lines_.back().split, "validation");
  EXPECT_FALSE(sent_[1].back().has_report_request());
  tested.mutable_evaluation()->set_is_final(true);
  tested.mutable_evaluation()->set_loss_sum(5);
  tested.mutable_evaluation()->set_correct(8.5);
  tested.mutable_evaluation()->set_samples(10);
  Receive(2, tested);
  EXPECT_EQ(lines_.back().kind, MetricsLine::Kind::kTest);
  EXPECT_DOUBLE_EQ(lines_.back().epoch, 2);
  ASSERT_TRUE(sent_[1].back().has_report_request());

  proto::PeerMessage report;
  report.mutable_shard_report()->set_duplicates(1);
  report.mutable_shard_report()->add_blocks()->set_block(1);
  Receive(1, report);
  EXPECT_FALSE(collect_.has_value());
  report.mutable_shard_report()->mutable_blocks(0)->set_block(0);
  Receive(kOwnShard, report);
  ASSERT_TRUE(collect_.has_value());
  EXPECT_EQ(*collect_, 6);
  const Summary& summary = coordinator_->summary();
  EXPECT_EQ(summary.stopped, "") << "the stop came when all had been trained";
  EXPECT_EQ(summary.samples, 40);
  EXPECT_EQ(summary.steps, 6);
  EXPECT_DOUBLE_EQ(summary.test_accuracy.value(), 0.85);
  EXPECT_DOUBLE_EQ(summary.test_loss.value(), 0.5);
  EXPECT_DOUBLE_EQ(summary.validation_loss.value(), 0);
  EXPECT_DOUBLE_EQ(summary.samples_per_second, 40.0 / 6);
  EXPECT_EQ(summary.duplicates, 2);
  EXPECT_EQ(summary.blocks[0].block(), 0);
  EXPECT_FALSE(end_.has_value());

  Handle(coordinator::Collected{absl::OkStatus()}).IgnoreError();
  RUBATO_EXPECT_OK(*end_);
  for (PeerId peer : {1, 2, 3, 6}) {
    ASSERT_TRUE(sent_[peer].back().has_stop());
    EXPECT_EQ(sent_[peer].back().stop().exit_code(), 0);
  }

  // Who comes now is told as well, if it is of this job.
  Receive(4, Worker());
  ASSERT_TRUE(sent_[4].back().has_stop());
  EXPECT_EQ(sent_[4].back().stop().exit_code(), 0);
  EXPECT_FALSE(sent_[4].back().stop().refused());
  proto::PeerMessage other = Worker();
  other.mutable_registration()->set_job_digest("other");
  Receive(5, other);
  EXPECT_EQ(sent_[5].back().stop().exit_code(), kExitUsage);
  EXPECT_EQ(coordinator_->absent(), 0);
}

TEST_F(CoordinatorTest, WhatOneThatIsLostHasToldOfTheLastTestIsNotToldAgain) {
  Start("evaluation { split: SPLIT_VALIDATION }");
  Begin();
  Stop(absl::OkStatus());
  Close(0, 0);
  Receive(2, Idle());
  Receive(3, Idle());
  SaveLast();
  ASSERT_TRUE(sent_[2].back().has_evaluation_request());
  const int64_t unit = sent_[2].back().evaluation_request().unit();
  const auto lines = [this](MetricsLine::Kind kind) {
    return std::count_if(lines_.begin(), lines_.end(),
                         [&](const MetricsLine& line) { return line.kind == kind; });
  };
  Receive(2, Evaluated(unit));
  EXPECT_EQ(lines(MetricsLine::Kind::kEval), 1);
  Gone(2);
  ASSERT_TRUE(sent_[3].back().has_evaluation_request());
  proto::PeerMessage tested = Evaluated(unit);
  Receive(3, tested);
  EXPECT_EQ(lines(MetricsLine::Kind::kEval), 1);
  tested.mutable_evaluation()->set_is_final(true);
  Receive(3, tested);
  EXPECT_EQ(lines(MetricsLine::Kind::kTest), 1);
  EXPECT_TRUE(sent_[1].back().has_report_request());
}

// One of them may wait for an earlier test before it computes the step at hand.
TEST_F(CoordinatorTest, WorkersOfAJobThatIsEndedByASignalHearThatTestsAreNotWaitedFor) {
  const auto hear = [this] {
    std::vector<PeerId> hear;
    for (const auto& [peer, messages] : sent_) {
      for (const proto::CoordinatorMessage& message : messages) {
        if (message.has_end_tests()) hear.push_back(peer);
      }
    }
    return hear;
  };
  Start();
  Begin();
  Stop(absl::OkStatus());
  EXPECT_THAT(hear(), IsEmpty()) << "a job that has reached its target waits";
  Stop(absl::CancelledError("interrupted by SIGINT"));
  EXPECT_THAT(hear(), ElementsAre(2, 3));
}

// It begins with two shards and two workers.
TEST_F(CoordinatorTest, WhoIsNotHereAtTheEndOrMayBeCutOffIsAbsent) {
  Start("cluster { lease: 4 }");
  Receive(kOwnShard, Shard(0));
  Receive(2, Worker());
  now_ += absl::Seconds(1.5);
  Receive(1, Shard(1));
  now_ += absl::Seconds(1);
  Stop(absl::OkStatus());
  Handle(coordinator::Collected{absl::OkStatus()}).IgnoreError();
  RUBATO_EXPECT_OK(*end_);
  EXPECT_EQ(coordinator_->absent(), 2) << "one has not been heard, and one is lacking";
}

class LatecomerTest : public CoordinatorTest {
 protected:
  void End(const std::string& job = "") {
    Start(job);
    Begin();
    Stop(absl::OkStatus());
    Close(1, 1);
    for (const PeerId worker : {2, 3}) Receive(worker, Idle());
    ASSERT_TRUE(coordinator_->is_ending());
    Receive(6, Worker());
    EXPECT_THAT(sent_[6], IsEmpty());
  }
};

TEST_F(LatecomerTest, TheEndDoesNotWaitForItNorForAWordOfIt) {
  End("cluster { workers { max: 2 } }");
  proto::PeerMessage failure;
  failure.mutable_failure()->set_exit_code(143);
  failure.mutable_failure()->set_reason("was asked to leave");
  Receive(6, failure);
  EXPECT_EQ(coordinator_->refused(), 0);
  EXPECT_THAT(sent_[6], IsEmpty());
  Receive(7, Worker());
  Receive(7, Idle());
  EXPECT_EQ(coordinator_->refused(), 1);
  EXPECT_THAT(Reason(7), HasSubstr("says idle while it waits for the end"));
  Receive(8, Worker());
  Gone(8);
  SaveLast();
  EXPECT_THAT(sent_[8], IsEmpty());
}

TEST_F(LatecomerTest, WhenTheJobGoesBackItMayRegisterAnew) {
  End("cluster { max_restarts: 3 }");
  Gone(1);
  ASSERT_TRUE(end_.has_value());
  ASSERT_TRUE(sent_[6].back().has_stop());
  EXPECT_TRUE(sent_[6].back().stop().goes_back());
}

TEST_F(LatecomerTest, AnEndThatIsAnErrorIsItsToo) {
  End();
  Handle(coordinator::Failed{absl::DataLossError("the disk is full")}).IgnoreError();
  EXPECT_EQ(sent_[6].back().stop().exit_code(), kExitFailure);
  EXPECT_THAT(Reason(6), HasSubstr("the disk is full"));
}

TEST_F(CoordinatorTest, OfAJobThatIsOverOneThatBeginsKnowsNothingButThat) {
  begin_.is_over = true;
  Start();
  EXPECT_EQ(coordinator_->absent(), 3);
  Handle(coordinator::Tick{}).IgnoreError();
  Receive(1, Shard(1));
  Receive(2, Worker());
  for (PeerId peer : {1, 2}) {
    ASSERT_EQ(sent_[peer].size(), 1);
    EXPECT_EQ(sent_[peer].back().stop().exit_code(), 0);
  }
  Receive(3, Idle());
  EXPECT_THAT(sent_[3], IsEmpty());
  EXPECT_FALSE(end_.has_value());
}

TEST_F(CoordinatorTest, AShardThatIsGoneEndsTheJobForAll) {
  Start();
  Begin();
  Gone(1);
  ASSERT_TRUE(end_.has_value());
  EXPECT_THAT(*end_,
              IsError(absl::StatusCode::kAborted, HasSubstr("shard 1 (host pid 1) is gone")));
  EXPECT_THAT(Reason(2), HasSubstr("shard 1"));
  EXPECT_THAT(Reason(3), HasSubstr("shard 1"));
}

TEST_F(CoordinatorTest, AStopEndsAllAtOneStepWithACheckpoint) {
  Start();
  Begin();
  Stop(absl::CancelledError("interrupted"));
  Close(1, 1);
  for (const PeerId worker : {2, 3}) EXPECT_EQ(sent_[worker].back().view().until_step(), 2);
  Receive(2, Idle());
  EXPECT_TRUE(sent_[1].back().has_view());
  Receive(3, Idle());
  EXPECT_LAST_TO_SHARDS(has_snapshot());
  EXPECT_EQ(sent_[1].back().snapshot().step(), 2);
  const uint32_t id = sent_[1].back().snapshot().id();
  Receive(kOwnShard, Copied(id, 0, 2));
  Receive(1, Copied(id, 1, 2));
  ASSERT_EQ(manifests_.size(), 1u);
  EXPECT_FALSE(end_.has_value()) << "not before the checkpoint is written";
  Checkpointed(id, std::string("step-2"));
  ASSERT_TRUE(end_.has_value());
  EXPECT_THAT(*end_, IsError(absl::StatusCode::kCancelled, HasSubstr("interrupted")));
}

// As a machine that shuts down does it.
class StopsTest : public CoordinatorTest {
 protected:
  void ExpectACheckpointAfter(const absl::Status& first, const absl::Status& second) {
    Start();
    Begin();
    Stop(first);
    Stop(second);
    ASSERT_FALSE(end_.has_value());
    Close(1, 1);
    Receive(2, Idle());
    Receive(3, Idle());
    EXPECT_LAST_TO_SHARDS(has_snapshot());
    const uint32_t id = sent_[1].back().snapshot().id();
    Receive(kOwnShard, Copied(id, 0, 2));
    Receive(1, Copied(id, 1, 2));
    Checkpointed(id, std::string("step-2"));
    ASSERT_TRUE(end_.has_value());
    EXPECT_THAT(*end_, IsError(absl::StatusCode::kCancelled, HasSubstr("interrupted")));
  }
  const absl::Status own_ = absl::CancelledError("interrupted");
  const absl::Status anothers_ = absl::AbortedError("shard 1 was ended");
};

TEST_F(StopsTest, OfThisAndAnotherServer) { ExpectACheckpointAfter(own_, anothers_); }

TEST_F(StopsTest, OfAnotherServerAndThis) { ExpectACheckpointAfter(anothers_, own_); }

// One of two was held up with its part of step 0 and the other has died. Then the step is completed
// after all: the versions that the shards told when they closed are not the last word.
TEST_F(CoordinatorTest, WhoIsLeftFinishesTheStepWhenAPausedJobIsStopped) {
  Start("cluster { workers { min: 2 } }");
  Begin();
  Gone(3);
  Close(0, 0);
  EXPECT_EQ(coordinator_->Status(now_).state(), "paused");
  Stop(absl::OkStatus());
  const proto::View& view = sent_[2].back().view();
  EXPECT_EQ(view.until_step(), 1);
  EXPECT_THAT(Assignments(2), ElementsAre("0 0:0-2 0:2-4", "1 0:0-4"));
  Receive(2, Idle());
  EXPECT_LAST_TO_SHARDS(has_snapshot());
  EXPECT_EQ(sent_[1].back().snapshot().step(), 1);
}

TEST_F(CoordinatorTest, AStopWithNobodyLeftEndsTheJobIfAShardHasGoneOn) {
  for (const bool missed : {false, true}) {
    sent_.clear();
    end_.reset();
    Start("cluster { workers { min: 2 } }");
    Begin();
    Gone(2);
    Gone(3);
    Close(1, 1);
    Stop(absl::OkStatus());
    EXPECT_LAST_TO_SHARDS(has_snapshot());
    const proto::Snapshot& snapshot = sent_[1].back().snapshot();
    EXPECT_EQ(snapshot.step(), 1);
    Receive(kOwnShard, Copied(snapshot.id(), 0, 1));
    proto::PeerMessage answer = Copied(snapshot.id(), 1, 1);
    if (missed) {
      answer.mutable_snapshot_missed()->set_id(snapshot.id());
      answer.mutable_snapshot_missed()->set_version(2);
    }
    Receive(1, answer);
    EXPECT_EQ(manifests_.size(), 1u) << missed;
    ASSERT_EQ(end_.has_value(), missed);
    if (missed) {
      EXPECT_THAT(*end_, IsError(absl::StatusCode::kAborted, HasSubstr("no worker was there")));
    }
  }
}

TEST_F(CoordinatorTest, AStopBeforeAllAreHereEndsTheJobWithASummaryOfNothing) {
  Start();
  Receive(2, Worker());
  Stop(absl::OkStatus());
  for (const auto& [peer, message] :
       std::map<PeerId, proto::PeerMessage>{{3, Worker()}, {kOwnShard, Shard(0)}, {1, Shard(1)}}) {
    Receive(peer, message);
  }
  Tick();
  EXPECT_THAT(sent_[1], IsEmpty()) << "no view is opened any more";
  EXPECT_TRUE(collect_.has_value());
  Handle(coordinator::Collected{absl::OkStatus()}).IgnoreError();
  ASSERT_TRUE(end_.has_value());
  RUBATO_EXPECT_OK(*end_);
  EXPECT_EQ(coordinator_->summary().samples, 0);
  for (const PeerId peer : {1, 2, 3}) EXPECT_EQ(sent_[peer].back().stop().exit_code(), 0);
}

TEST_F(CoordinatorTest, AStopWhileTheShardsOpenEndsTheJobAsSoonAsItHasBegun) {
  Start();
  Receive(2, Worker());
  Receive(3, Worker());
  Receive(kOwnShard, Shard(0));
  Receive(1, Shard(1));
  Stop(absl::OkStatus());
  EXPECT_FALSE(end_.has_value());
  Opened();
  Close(0, 0);
  EXPECT_EQ(sent_[2].back().view().until_step(), 1);
}

TEST_F(CoordinatorTest, TheSentenceOfADivergedJobNamesTheLastGoodCheckpoint) {
  Start();
  Begin();
  Receive(3, NotFinite());
  ASSERT_TRUE(end_.has_value());
  const std::string sentence =
      "step 2: the gradient of x is not finite; there is no checkpoint (often the learning rate is "
      "too high, or the inputs are not normalized)";
  EXPECT_THAT(*end_,
              IsError(absl::StatusCode::kAborted, "worker 1 (host pid 0) failed: " + sentence));
  EXPECT_EQ(Reason(2), "worker 1 (host pid 0) failed: " + sentence);
  EXPECT_EQ(coordinator_->summary().diverged, "step 2: the gradient of x is not finite");
  EXPECT_FALSE(coordinator_->summary().test_loss.has_value());
  // The culprit hears of its own failure first.
  const proto::Stop& own = sent_[3][sent_[3].size() - 2].stop();
  EXPECT_EQ(own.reason(), sentence);
  EXPECT_TRUE(own.refused());
}

class DivergedTest : public CoordinatorTest {
 protected:
  // A job begins, and a loss is not finite while the checkpoint is written that this returns.
  uint32_t DivergeWhileWriting() {
    sent_.clear();
    end_.reset();
    Start("checkpoint { every { steps: 2 } }");
    Begin();
    const uint32_t id = sent_[1].back().snapshot().id();
    Receive(kOwnShard, Copied(id, 0, 2));
    Receive(1, Copied(id, 1, 2));
    Receive(3, NotFinite());
    return id;
  }
};

// It may be better than the one before, and training has stopped in any case.
TEST_F(DivergedTest, ADivergedJobWaitsForTheCheckpointThatIsBeingWritten) {
  for (const bool good : {true, false}) {
    begin_.path = "older";
    const uint32_t id = DivergeWhileWriting();
    Receive(2, NotFinite());
    EXPECT_FALSE(end_.has_value());
    Checkpointed(id, good ? absl::StatusOr<std::string>("newer")
                          : absl::StatusOr<std::string>(absl::InternalError("disk")));
    ASSERT_TRUE(end_.has_value());
    EXPECT_THAT(std::string(end_->message()),
                ::testing::AllOf(HasSubstr("worker 1"),
                                 HasSubstr(absl::StrCat("the last good checkpoint is ",
                                                        good ? "newer" : "older", " (often"))));
  }
}

// What comes while the checkpoint is still being written is not the reason.
TEST_F(DivergedTest, ADivergedJobEndsAsOneWhateverElseEndsIt) {
  proto::PeerMessage failure, impossible;
  failure.mutable_failure()->set_exit_code(1);
  failure.mutable_failure()->set_reason("no memory");
  impossible.mutable_evaluation();
  const std::vector<std::function<void(uint32_t id)>> ends = {
      [&](uint32_t) { Gone(1); }, [&](uint32_t) { Receive(1, failure); },
      [&](uint32_t) { Receive(1, impossible); },
      [&](uint32_t) {
        Handle(coordinator::Failed{absl::DataLossError("the disk is full")}).IgnoreError();
      },
      [&](uint32_t id) {
        Stop(absl::CancelledError("interrupted"));
        EXPECT_FALSE(end_.has_value());
        Checkpointed(id, std::string("newer"));
      }};
  for (const auto& end : ends) {
    const uint32_t id = DivergeWhileWriting();
    EXPECT_FALSE(end_.has_value());
    end(id);
    ASSERT_TRUE(end_.has_value());
    EXPECT_THAT(std::string(end_->message()), HasSubstr("the gradient of x is not finite"));
    EXPECT_EQ(coordinator_->summary().diverged, "step 2: the gradient of x is not finite");
  }
}

}  // namespace
}  // namespace rubato
