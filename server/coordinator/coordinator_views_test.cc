// Changes of view: members and modes.
#include "common/space/modes.h"
#include "server/coordinator/coordinator_fixture.h"

namespace rubato {
namespace {

// Open steps keep their division, but for what the lost one had been granted.
TEST_F(CoordinatorTest, TheOthersTakeOverTheMicroBatchesOfALostWorker) {
  Start();
  Begin();
  Gone(3);
  EXPECT_THAT(warnings_,
              ElementsAre("worker 1 (host pid 0) is gone: its connection broke at step 0"));
  Close(0, 1);
  EXPECT_FALSE(end_.has_value());
  EXPECT_EQ(sent_[2].back().view().number(), 2u);
  EXPECT_EQ(sent_[2].back().view().from_step(), 2);
  EXPECT_THAT(Assignments(2), ElementsAre("0 0:0-2 0:2-4", "2 0:0-4"));
  EXPECT_THAT(journal_.back(), HasSubstr("worker 1"));
  // It comes back: another incarnation, at work from the step after the open one on.
  Receive(4, Worker(1));
  Close(2, 2);
  EXPECT_EQ(sent_[4].back().view().members(1).incarnation(), 2u);
  EXPECT_THAT(Assignments(4), ElementsAre("2 0:0-4", "3 0:0-2 1:2-4"));
}

TEST_F(CoordinatorTest, UnderTheLeastNumberOfWorkersItPausesAndGoesOn) {
  Start("cluster { workers { min: 2 } }");
  Begin();
  Gone(3);
  Close(0, 0);
  EXPECT_THAT(warnings_.back(), HasSubstr("paused at step 0: 1 of at least 2 workers"));
  EXPECT_TRUE(sent_[1].back().has_close()) << "the shards stand still";
  EXPECT_EQ(coordinator_->Status(now_).state(), "paused");
  Receive(4, Worker());
  EXPECT_LAST_TO_SHARDS(has_view());
  EXPECT_EQ(sent_[2].back().view().members_size(), 2);
}

// Each change stops all workers: who has gone bad may not have them stop all the time.
TEST_F(CoordinatorTest, WhoComesAndGoesAgainAndAgainChangesTheViewSeldom) {
  Start();
  Begin();
  PeerId peer = 10;
  const auto close = [this] {
    if (sent_[1].back().has_close()) Close(0, 0);
  };
  const auto come = [&] {
    Receive(++peer, Worker());
    close();
  };
  const auto come_and_go = [&](int times) {
    const uint32_t before = coordinator_->view().number();
    for (int i = 0; i < times; ++i) {
      come();
      proto::PeerMessage leave;
      leave.mutable_leave();
      Receive(peer, leave);
      close();
    }
    return coordinator_->view().number() - before;
  };
  EXPECT_EQ(come_and_go(1000), 2u * Coordinator::kJoinsAtOnce);
  now_ += Coordinator::kBetweenJoins;
  EXPECT_EQ(come_and_go(1000), 2u);
  // Who stays joins a little later.
  come();
  EXPECT_EQ(coordinator_->view().members_size(), 2);
  now_ += Coordinator::kBetweenJoins;
  Handle(coordinator::Tick{}).IgnoreError();
  close();
  EXPECT_EQ(coordinator_->view().members_size(), 3);
  EXPECT_THAT(journal_.back(), HasSubstr("joins"));
}

// The end of the lineage, its end seen by all, and another one from there on.
TEST_F(CoordinatorTest, ASwitchTakesPlaceWhenNothingIsUnderWay) {
  Start();
  Begin();
  auto text = Handle(coordinator::SwitchRequested{BoundedMode(3)});
  RUBATO_ASSERT_OK(text);
  EXPECT_THAT(*text, HasSubstr("from sync to bounded, staleness 3"));
  Close(0, 1);
  EXPECT_EQ(sent_[2].back().view().until_step(), 2);
  EXPECT_EQ(sent_[2].back().view().lineage(), 1u);
  Receive(2, Idle());
  Receive(3, Idle());
  Close(2, 2);
  const proto::View view = sent_[2].back().view();
  EXPECT_EQ(view.lineage(), 2u);
  EXPECT_EQ(ModeName(view.mode()), "bounded, staleness 3");
  EXPECT_EQ(view.origin_unit(), 2);
  EXPECT_EQ(view.origin_samples(), 16);
  // 24 samples in contributions of 4; the epoch's end is between them.
  EXPECT_EQ(view.until_step(), 2 + 6);
  // Asked for once more, there is nothing to do.
  const size_t sent = sent_[1].size();
  text = Handle(coordinator::SwitchRequested{BoundedMode(3)});
  RUBATO_ASSERT_OK(text);
  EXPECT_EQ(*text, "the mode is bounded, staleness 3 already");
  EXPECT_EQ(sent_[1].size(), sent);
  // And back, when what has been given out is applied.
  proto::PeerMessage request;
  request.mutable_work_request();
  Receive(2, request);
  EXPECT_EQ(sent_[2].back().work().contribution(), 2);
  RUBATO_ASSERT_OK(Handle(coordinator::SwitchRequested{SyncMode()}));
  Receive(3, request);
  EXPECT_FALSE(sent_[3].back().work().has_contribution());
  Receive(3, Idle());
  EXPECT_TRUE(sent_[1].back().has_view());
  proto::PeerMessage computed = Computed(2, {0, 2}, 1, 2);
  Receive(2, computed);
  Receive(2, Idle(/*applied=*/1));
  Close(3, 3);
  EXPECT_EQ(ModeName(sent_[2].back().view().mode()), "sync");
  EXPECT_EQ(sent_[2].back().view().origin_samples(), 20);
  EXPECT_EQ(coordinator_->Status(now_).ledger().applied(), 1);
}

// The next lineage has begun to begin: it ends at once.
TEST_F(CoordinatorTest, AStopThatMeetsAChangeOfModeEndsTheNextLineageAtItsBeginning) {
  for (const bool to_sync : {false, true}) {
    SCOPED_TRACE(to_sync);
    sent_.clear();
    Start(to_sync ? "consistency { mode { mode: NAME_ASYNC } }" : "");
    Begin();
    const proto::Mode mode = to_sync ? SyncMode() : AsyncMode();
    RUBATO_ASSERT_OK(Handle(coordinator::SwitchRequested{mode}));
    if (!to_sync) Close(0, 0);
    Receive(2, Idle());
    Receive(3, Idle());
    Stop(absl::OkStatus());
    const int64_t done = to_sync ? 0 : 1;
    Close(done, done);
    EXPECT_EQ(ModeName(sent_[2].back().view().mode()), ModeName(mode));
    EXPECT_EQ(sent_[2].back().view().until_step(), done);
    Receive(2, Idle());
    Receive(3, Idle());
    EXPECT_LAST_TO_SHARDS(has_snapshot());
    EXPECT_EQ(sent_[1].back().snapshot().step(), done);
  }
}

TEST_F(CoordinatorTest, TheScheduleSaysWhichModeHoldsWhen) {
  Start(
      "consistency { schedule { mode { mode: NAME_ASYNC } until { epochs: 1 } } schedule { mode { "
      "mode: NAME_SYNC } "
      "} }");
  Begin();
  EXPECT_EQ(ModeName(sent_[2].back().view().mode()), "async");
  EXPECT_EQ(sent_[2].back().view().until_step(), 5);
  EXPECT_FALSE(sent_[2].back().view().tests_origin());
}

// Both are at the end of the first epoch.
TEST_F(CoordinatorTest, ATestThatIsDueWhereTheModeChangesIsToldInTheNextMode) {
  Start(
      "consistency { schedule { mode { mode: NAME_SYNC } until { epochs: 1 } } schedule { mode { "
      "mode: NAME_BOUNDED staleness: 3 } until { epochs: 2 } } schedule { mode { mode: NAME_SYNC } "
      "} }");
  Begin();
  EXPECT_EQ(sent_[2].back().view().until_step(), 3);
  for (int64_t step = 0; step < 3; ++step) {
    Receive(2, Computed(step, {0, 2}, 1, 2));
    Receive(3, Computed(step, {2, 4}, 1, 2));
  }
  Receive(2, Idle());
  Receive(3, Idle());
  Close(3, 3);
  EXPECT_TRUE(sent_[2].back().view().tests_origin());
  proto::PeerMessage request;
  request.mutable_work_request();
  Receive(2, request);
  EXPECT_TRUE(sent_[2].back().work().evaluate());
  lines_.clear();
  Receive(2, Evaluated(3));
  ASSERT_EQ(lines_.size(), 1u);
  EXPECT_EQ(lines_[0].samples, 20);
}

}  // namespace
}  // namespace rubato
