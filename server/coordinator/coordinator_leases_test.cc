// Who is taken for dead.
#include "server/coordinator/coordinator_fixture.h"

namespace rubato {
namespace {

TEST_F(CoordinatorTest, ASilentWorkerIsTakenForDeadAndToldSo) {
  Start("cluster { lease: 5 }");
  Begin();
  for (int i = 0; i < 46; ++i) {
    now_ += absl::Milliseconds(100);
    Beat(0);
    Tick();
  }
  ASSERT_TRUE(sent_[3].back().has_stop());
  EXPECT_TRUE(sent_[3].back().stop().evicted());
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("worker 1 (host pid 0) was not heard of for 4.5s")));
  EXPECT_TRUE(sent_[2].back().has_view()) << "the other stays";
  EXPECT_LAST_TO_SHARDS(has_close());
  // What it says afterwards changes nothing.
  Receive(3, Computed(0, {2, 4}, 1, 2));
  EXPECT_TRUE(sent_[3].back().stop().evicted());
  EXPECT_EQ(coordinator_->refused(), 0);
}

TEST_F(CoordinatorTest, TheTestsOfOthersAreWaitedForUnlessTheyDie) {
  Start("consistency { mode { mode: NAME_ASYNC } } cluster { lease: 5 }");
  Begin();
  proto::PeerMessage request;
  request.mutable_work_request();
  for (int64_t unit = 0; unit < 10; ++unit) {
    const PeerId peer = 2 + unit % 2;
    Receive(peer, request);
    EXPECT_EQ(sent_[peer].back().work().evaluate(), unit == 5);  // by worker 1
    proto::PeerMessage computed = Computed(unit, {0, 2}, 1, 2);
    computed.mutable_progress()->set_clock(unit / 2);
    Receive(peer, computed);
  }
  Receive(2, Idle(/*applied=*/5));
  Receive(3, Idle(/*applied=*/5));
  SaveLast();
  EXPECT_FALSE(sent_[2].back().has_evaluation_request());
  for (int i = 0; i < 46; ++i) {
    now_ += absl::Milliseconds(100);
    Beat(0);
    Tick();
  }
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("worker 1 (host pid 0) was not heard of for 4.5s "
                                               "(cluster.lease: 5s) during a test of earlier")));
  EXPECT_TRUE(sent_[2].back().has_evaluation_request());
}

TEST_F(CoordinatorTest, AWorkerThatDoesNotDoTheFinalTestIsTakenForDeadAndAnotherDoesIt) {
  Start("cluster { lease: 5 stall_timeout: 20 }");
  Begin();
  for (int64_t step = 0; step < 6; ++step) {
    const int64_t samples = step % 3 == 2 ? 1 : 2;
    Receive(2, Computed(step, {0, 2}, 1, samples));
    Receive(3, Computed(step, {2, 4}, 1, samples));
  }
  Receive(2, Evaluated(3));
  Receive(2, Idle());
  Receive(3, Idle());
  SaveLast();
  ASSERT_TRUE(sent_[2].back().has_evaluation_request());
  const auto wait = [&](int tenths, std::vector<int> heard) {
    for (int i = 0; i < tenths; ++i) {
      now_ += absl::Milliseconds(100);
      for (int rank : heard) Beat(rank);
      Tick();
    }
  };
  wait(190, {0, 1});
  EXPECT_THAT(warnings_, IsEmpty());
  EXPECT_THAT(coordinator_->Status(now_).waits(),
              ElementsAre(HasSubstr("the final test waits for worker 0, for 19")));
  wait(15, {0, 1});
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("worker 0 (host pid 0) is alive but has not done "
                                               "the final test in 20s (cluster.stall_timeout)")));
  EXPECT_TRUE(sent_[2].back().stop().evicted());
  ASSERT_TRUE(sent_[3].back().has_evaluation_request());
  EXPECT_FALSE(sent_[1].back().has_report_request());
  wait(46, {});
  ASSERT_EQ(warnings_.size(), 3u);
  EXPECT_THAT(warnings_[1], HasSubstr("worker 1 (host pid 0) was not heard of for 4.5s "
                                      "(cluster.lease: 5s) during the final test"));
  EXPECT_THAT(warnings_[2], HasSubstr("no worker is left to test the final parameters"));
  EXPECT_TRUE(sent_[1].back().has_report_request());
}

// Nothing is missing of it: all have seen the end of the training.
TEST_F(CoordinatorTest, AWorkerThatFallsSilentDuringTheLastCheckpointIsMissedWhenItShallTest) {
  Start("cluster { lease: 5 }");
  Begin();
  for (int64_t step = 0; step < 6; ++step) {
    const int64_t samples = step % 3 == 2 ? 1 : 2;
    Receive(2, Computed(step, {0, 2}, 1, samples));
    Receive(3, Computed(step, {2, 4}, 1, samples));
  }
  Receive(2, Evaluated(3));
  Receive(2, Idle());
  Receive(3, Idle());
  for (int i = 0; i < 100; ++i) {
    now_ += absl::Milliseconds(100);
    Beat(1);
    Tick();
  }
  EXPECT_THAT(warnings_, IsEmpty());
  SaveLast();
  ASSERT_TRUE(sent_[2].back().has_evaluation_request());
  Tick();
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("worker 0 (host pid 0) was not heard of for 4.5s "
                                               "(cluster.lease: 5s) during the final test")));
  EXPECT_TRUE(sent_[3].back().has_evaluation_request());
}

TEST_F(CoordinatorTest, AFrozenCoordinatorTakesNobodyForDead) {
  Start("cluster { lease: 5 }");
  Begin();
  now_ += absl::Milliseconds(100);
  Tick();
  now_ += absl::Seconds(10);
  Tick();
  now_ += absl::Milliseconds(100);
  Tick();
  EXPECT_THAT(warnings_, IsEmpty());
  // Who is still silent when that is no longer borne is dead.
  for (int i = 0; i < 46; ++i) {
    now_ += absl::Milliseconds(100);
    Beat(0);
    Tick();
  }
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("worker 1 (host pid 0) was not heard of for 4.5s")));
}

// Both do what they do from now on for 20.1 s: one waits and the other does not.
TEST_F(CoordinatorTest, AWorkerThatIsAliveButHoldsUpTheOthersIsTakenForDead) {
  Start("cluster { lease: 5 stall_timeout: 20 }");
  Begin();
  Receive(2, Computed(0, {0, 2}, 1, 2));
  Work(/*seconds=*/20, /*busy=*/{1});
  EXPECT_THAT(warnings_, IsEmpty());
  Work(/*seconds=*/0.1, /*busy=*/{1});
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("worker 1 (host pid 0) is alive but has been at one "
                                               "thing for 20s (cluster.stall_timeout)")));
  EXPECT_TRUE(sent_[3].back().stop().evicted());
  Close(0, 0);
  EXPECT_EQ(sent_[2].back().view().members_size(), 1);
}

// It tells of what it has computed, and hangs before its sums have left: all others compute nothing
// either. When it goes on, they have just got what they need.
TEST_F(CoordinatorTest, AWorkerWhoseSumsDoNotComeIsTakenForDeadNotThoseWhoWaitForThem) {
  Start("cluster { lease: 5 stall_timeout: 20 }");
  Begin();
  Receive(2, Computed(0, {0, 2}, 1, 2));
  Receive(3, Computed(0, {2, 4}, 1, 2));
  Work(/*seconds=*/19.9, /*busy=*/{1});
  busy_[1] = 0;
  Work(/*seconds=*/19.9, /*busy=*/{0, 1});
  EXPECT_THAT(warnings_, IsEmpty());
  busy_[0] = 0;
  Work(/*seconds=*/0.2, /*busy=*/{1});
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("worker 1 (host pid 0) is alive but has been at one "
                                               "thing for 20s")));
  EXPECT_FALSE(sent_[2].back().has_stop()) << "the other stays";
}

TEST_F(CoordinatorTest, NobodyIsTakenForDeadWhileAllWaitForAShard) {
  Start("cluster { lease: 5 stall_timeout: 20 }");
  Begin();
  Work(/*seconds=*/60, /*busy=*/{});
  EXPECT_THAT(warnings_, IsEmpty());
  EXPECT_EQ(coordinator_->view().number(), 1u);
}

TEST_F(CoordinatorTest, AHeartbeatOfAnotherJobRenewsNoLeaseAndBlamesNobody) {
  Start("cluster { lease: 5 stall_timeout: 20 }");
  Begin();
  proto::HeartbeatRequest request;
  request.set_job_digest("of another job");
  request.set_rank(1);
  request.set_incarnation(1);
  request.set_busy_seconds(1e9);
  for (int i = 0; i < 46; ++i) {
    now_ += absl::Milliseconds(100);
    Handle(coordinator::Heartbeat{request}).IgnoreError();
    Beat(0);
    Tick();
  }
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("worker 1 (host pid 0) was not heard of for 4.5s")));
}

// One that knows rank and incarnation does not know what was drawn for the registration.
TEST_F(CoordinatorTest, AHeartbeatInAnothersNameRenewsNoLeaseAndBlamesNobody) {
  Start("cluster { lease: 5 stall_timeout: 20 }");
  Begin();
  proto::HeartbeatRequest request;
  request.set_job_digest(kDigest);
  request.set_rank(1);
  request.set_incarnation(1);
  request.set_attempt(12);
  request.set_busy_seconds(1e9);
  for (int i = 0; i < 46; ++i) {
    now_ += absl::Milliseconds(100);
    Handle(coordinator::Heartbeat{request}).IgnoreError();
    Beat(0);
    Tick();
  }
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("worker 1 (host pid 0) was not heard of for 4.5s")));
}

TEST_F(CoordinatorTest, TheStatusTellsOfAShardThatKeepsOthersWaiting) {
  Start("cluster { lease: 5 }");
  Begin();
  proto::HeartbeatRequest request;
  request.set_job_digest(kDigest);
  request.set_shard(1);
  for (const double busy : {0.5, 3.25}) {
    request.set_busy_seconds(busy);
    Handle(coordinator::Heartbeat{request}).IgnoreError();
    EXPECT_EQ(::testing::Value(
                  coordinator_->Status(now_).waits(),
                  ::testing::Contains("the engine of shard 1 keeps others waiting, for 3.2 s")),
              busy > 1);
  }
}

// Workers that wait for it seem to be waited for.
TEST_F(CoordinatorTest, TheStatusTellsFirstOfAShardThatIsNotHeardOf) {
  Start("cluster { lease: 40 }");
  Begin();
  Work(/*seconds=*/20, /*busy=*/{});
  EXPECT_THAT(coordinator_->Status(now_).waits(),
              ::testing::Each(::testing::Not(HasSubstr("shard"))));
  is_shard_silent_ = true;
  Work(/*seconds=*/10, /*busy=*/{});
  const proto::JobStatus status = coordinator_->Status(now_);
  ASSERT_GE(status.waits_size(), 1);
  EXPECT_EQ(status.waits(0), "shard 1 was not heard of for 10.0 s");
  for (const proto::JobStatus::Server& server : status.servers()) {
    EXPECT_EQ(server.has_seconds_silent(), server.shard() == 1) << "0 is who answers";
    EXPECT_NEAR(server.seconds_silent(), server.shard() == 1 ? 10 : 0, 1e-6);
  }
  for (int i = 1; i < status.waits_size(); ++i) EXPECT_THAT(status.waits(i), HasSubstr("worker"));
}

TEST_F(CoordinatorTest, ASilentShardEndsTheJobByName) {
  Start("cluster { lease: 5 }");
  Begin();
  Work(/*seconds=*/10, /*busy=*/{});
  EXPECT_FALSE(end_.has_value());
  is_shard_silent_ = true;
  Work(/*seconds=*/4.5, /*busy=*/{});
  EXPECT_FALSE(end_.has_value());
  Work(/*seconds=*/0.1, /*busy=*/{});
  ASSERT_TRUE(end_.has_value());
  EXPECT_THAT(
      std::string(end_->message()),
      ::testing::StartsWith("shard 1 (host pid 1) was not heard of for 4.5s (cluster.lease: 5s)"));
  EXPECT_THAT(Reason(2), HasSubstr("shard 1 (host pid 1) was not heard of"));
}

// It may be alive where the one whose place it wants is cut off.
TEST_F(CoordinatorTest, AShardThatWasRefusedRenewsNoLeaseOfTheOneWithItsNumber) {
  Start("cluster { lease: 5 }");
  proto::PeerMessage first = Shard(1), second = Shard(1);
  first.mutable_registration()->set_attempt(11);
  second.mutable_registration()->set_attempt(12);
  Receive(2, Worker());
  Receive(3, Worker());
  Receive(kOwnShard, Shard(0));
  Receive(1, first);
  Opened();
  Receive(4, second);
  EXPECT_THAT(Reason(4), HasSubstr("shard 1 is already served by"));
  is_shard_silent_ = true;
  proto::HeartbeatRequest beat;
  beat.set_job_digest(kDigest);
  beat.set_shard(1);
  for (int i = 0; i < 30; ++i) {
    beat.set_attempt(11);
    Handle(coordinator::Heartbeat{beat}).IgnoreError();
    Work(/*seconds=*/1, /*busy=*/{});
  }
  EXPECT_FALSE(end_.has_value());
  for (int i = 0; i < 5; ++i) {
    beat.set_attempt(12);
    Handle(coordinator::Heartbeat{beat}).IgnoreError();
    Work(/*seconds=*/1, /*busy=*/{});
  }
  ASSERT_TRUE(end_.has_value());
  EXPECT_THAT(std::string(end_->message()), HasSubstr("shard 1 (host pid 1) was not heard of"));
}

// Who has computed what it was given and does not ask for more holds up those who are ahead of it:
// they have been given work, and may not begin.
TEST_F(CoordinatorTest, AWorkerThatDoesNotAskForMoreIsTakenForDeadNotThoseWhoWaitForIt) {
  Start(
      "cluster { lease: 5 stall_timeout: 20 } "
      "consistency { mode { mode: NAME_BOUNDED staleness: 1 } }");
  Begin();
  proto::PeerMessage request;
  request.mutable_work_request();
  for (const PeerId peer : {2, 3}) {
    Receive(peer, request);
    Receive(peer, Computed(sent_[peer].back().work().contribution(), {0, 2}, 1, 2));
  }
  Receive(3, request);
  proto::PeerMessage second = Computed(sent_[3].back().work().contribution(), {0, 2}, 1, 2);
  second.mutable_progress()->set_clock(1);
  Receive(3, second);
  Receive(3, request);
  EXPECT_THAT(coordinator_->Status(now_).waits(),
              ElementsAre("worker 0 is to finish what it has begun, for 0.0 s"));
  Work(/*seconds=*/20.1, /*busy=*/{0});
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("worker 0 (host pid 0) is alive but has been at one "
                                               "thing for 20s")));
}

TEST_F(CoordinatorTest, ANewViewDoesNotRenewTheLeaseOfASilentWorker) {
  Start("cluster { lease: 5 }");
  Begin();
  for (int i = 0; i < 46; ++i) {
    now_ += absl::Milliseconds(100);
    Beat(0);
    if (i == 30) {
      Receive(4, Worker());
      Close(0, 0);
      EXPECT_EQ(sent_[2].back().view().members_size(), 3);
    }
    Tick();
  }
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("worker 1 (host pid 0) was not heard of for 4.5s")));
}

// Its connections break meanwhile, and no shard is to blame. What broke may be heard of before it
// looks at the clock, or after.
class StandstillTest : public CoordinatorTest, public ::testing::WithParamInterface<bool> {};

TEST_P(StandstillTest, AServerThatStoodStillForTooLongNamesItself) {
  Start("cluster { lease: 5 }");
  Begin();
  Tick();
  now_ += absl::Seconds(8);
  if (GetParam()) Tick();
  Gone(1);
  ASSERT_TRUE(end_.has_value());
  EXPECT_THAT(
      std::string(end_->message()),
      ::testing::AllOf(::testing::StartsWith("shard 0 stood still for 8s (cluster.lease: 5s)"),
                       HasSubstr("shard 1")));
}

INSTANTIATE_TEST_SUITE_P(TicksFirst, StandstillTest, ::testing::Bool());

TEST_F(CoordinatorTest, AShardThatGoesLaterIsBlamedItself) {
  Start("cluster { lease: 5 }");
  Begin();
  Tick();
  now_ += absl::Seconds(8);
  for (int i = 0; i < 60; ++i) {
    Tick();
    now_ += absl::Milliseconds(100);
  }
  Gone(1);
  ASSERT_TRUE(end_.has_value());
  EXPECT_THAT(std::string(end_->message()), ::testing::StartsWith("shard 1"));
}

TEST_F(CoordinatorTest, NobodyIsBlamedForAPause) {
  Start(
      "cluster { workers { min: 2 } lease: 5 stall_timeout: 20 } "
      "consistency { mode { mode: NAME_ASYNC } }");
  Begin();
  Gone(3);
  Close(0, 0);
  const size_t warnings = warnings_.size();
  for (int i = 0; i < 300; ++i) {
    now_ += absl::Milliseconds(100);
    Beat(0);
    Tick();
  }
  EXPECT_EQ(coordinator_->Status(now_).state(), "paused");
  EXPECT_EQ(warnings_.size(), warnings);
}

}  // namespace
}  // namespace rubato
