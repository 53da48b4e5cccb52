// What is given out, and what comes of it.
#include "server/coordinator/coordinator_fixture.h"

namespace rubato {
namespace {

TEST_F(CoordinatorTest, LinesInSyncComeInOrderOfStepsWhoeverIsFaster) {
  Start();
  Begin();
  now_ += absl::Seconds(2);
  Receive(2, Computed(0, {0, 2}, 1.0, 2));
  Receive(2, Computed(1, {0, 2}, 3.0, 2));
  EXPECT_THAT(lines_, IsEmpty());
  Receive(3, Computed(1, {2, 4}, 3.0, 2));
  EXPECT_THAT(lines_, IsEmpty());
  Receive(3, Computed(0, {2, 4}, 2.0, 2));
  ASSERT_EQ(lines_.size(), 2u);
  EXPECT_EQ(lines_[0].step, 1);
  EXPECT_DOUBLE_EQ(lines_[0].loss, 1.5);
  EXPECT_DOUBLE_EQ(lines_[0].accuracy.value(), 0.375);
  EXPECT_DOUBLE_EQ(lines_[0].samples_per_second, 4);
  EXPECT_DOUBLE_EQ(lines_[0].epoch, 0.4);
  EXPECT_DOUBLE_EQ(lines_[1].loss, 3.0);
}

TEST_F(CoordinatorTest, ALineIsOfWhenAStepWasComputedNotOfWhenThatWasTold) {
  Start();
  Begin();
  now_ += absl::Seconds(2);
  const auto held = [](proto::PeerMessage message, double seconds) {
    message.set_held_seconds(seconds);
    return message;
  };
  Receive(2, held(Computed(0, {0, 2}, 1.0, 2), 0.75));
  Receive(3, held(Computed(0, {2, 4}, 1.0, 2), 0.5));
  Receive(2, Computed(1, {0, 2}, 1.0, 2));
  Receive(3, Computed(1, {2, 4}, 1.0, 2));
  ASSERT_EQ(lines_.size(), 2u);
  EXPECT_DOUBLE_EQ(lines_[0].samples_per_second, 8 / 1.5);
  EXPECT_DOUBLE_EQ(lines_[1].time - lines_[0].time, 0.5);
}

TEST_F(CoordinatorTest, WhereTargetsAreNumbersThereIsNoAccuracy) {
  Start();
  Begin();
  for (const PeerId peer : {2, 3}) {
    const int64_t first = peer == 2 ? 0 : 2;
    proto::PeerMessage computed = Computed(0, {first, first + 2}, 1.5, 2);
    computed.mutable_progress()->clear_correct();
    Receive(peer, computed);
  }
  ASSERT_EQ(lines_.size(), 1u);
  EXPECT_DOUBLE_EQ(lines_[0].loss, 1.5);
  EXPECT_FALSE(lines_[0].accuracy.has_value());
  proto::PeerMessage tested;
  tested.mutable_evaluation()->set_unit(3);
  tested.mutable_evaluation()->set_loss_sum(5);
  tested.mutable_evaluation()->set_samples(10);
  Receive(2, tested);
  EXPECT_DOUBLE_EQ(lines_.back().loss, 0.5);
  EXPECT_FALSE(lines_.back().accuracy.has_value());
}

TEST_F(CoordinatorTest, GivesOutEachContributionOnceAndTestsAtEpochs) {
  // A contribution is half a step: 4 samples, 5 contributions an epoch.
  Start("consistency { mode { mode: NAME_ASYNC } }");
  Begin();
  EXPECT_EQ(sent_[2][0].view().leaves(), 2);
  proto::PeerMessage request;
  request.mutable_work_request();
  std::vector<int64_t> given;
  std::set<int64_t> tested;
  for (int i = 0; i < 12; ++i) {
    const PeerId peer = 2 + i % 2;
    Receive(peer, request);
    const proto::Work& work = sent_[peer].back().work();
    if (!work.has_contribution()) continue;
    given.push_back(work.contribution());
    if (work.evaluate()) tested.insert(work.contribution());
  }
  EXPECT_THAT(given, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
  EXPECT_THAT(tested, ElementsAre(5));
  EXPECT_FALSE(sent_[3].back().work().has_contribution());
}

// What a worker has been given, in order; -1: there is no more.
std::vector<int64_t> UnitsOf(const proto::Work& work) {
  std::vector<int64_t> units;
  const auto add = [&units](const proto::Work& one) {
    units.push_back(one.has_contribution() ? one.contribution() : -1);
  };
  add(work);
  for (const proto::Work& next : work.then()) add(next);
  return units;
}

TEST_F(CoordinatorTest, GivesOutSeveralContributionsAtOnceAndAsManyAsAreLeft) {
  Start("consistency { mode { mode: NAME_ASYNC } }");
  Begin();
  proto::PeerMessage request;
  request.mutable_work_request()->set_count(4);
  Receive(2, request);
  EXPECT_THAT(UnitsOf(sent_[2].back().work()), ElementsAre(0, 1, 2, 3));
  Receive(3, request);
  EXPECT_THAT(UnitsOf(sent_[3].back().work()), ElementsAre(4, 5, 6, 7));
  EXPECT_TRUE(sent_[3].back().work().then(0).evaluate());  // an epoch ends before 5
  EXPECT_FALSE(sent_[3].back().work().evaluate());
  Receive(2, request);
  EXPECT_THAT(UnitsOf(sent_[2].back().work()), ElementsAre(8, 9, -1));
  Receive(3, request);
  EXPECT_THAT(UnitsOf(sent_[3].back().work()), ElementsAre(-1));
}

TEST_F(CoordinatorTest, WhatALostWorkerHadNotBegunIsGivenToOthersFirstAndOnce) {
  Start("consistency { mode { mode: NAME_ASYNC } }");
  Begin();
  proto::PeerMessage request;
  request.mutable_work_request()->set_count(5);
  Receive(3, request);  // 0 to 4
  request.mutable_work_request()->set_count(2);
  Receive(2, request);  // 5 and 6
  Receive(3, Computed(0, {0, 2}, 1, 2));
  Gone(3);
  units_below_ = 1;  // all blocks hold 0
  Close(1, 1);
  request.mutable_work_request()->set_count(6);
  Receive(2, request);
  EXPECT_THAT(UnitsOf(sent_[2].back().work()), ElementsAre(1, 2, 3, 4, 7, 8));
  Receive(2, request);
  EXPECT_THAT(UnitsOf(sent_[2].back().work()), ElementsAre(9, -1));
  const proto::JobStatus::Ledger ledger = coordinator_->Status(now_).ledger();
  EXPECT_EQ(ledger.given(), 14);
  EXPECT_EQ(ledger.applied(), 1);
  EXPECT_EQ(ledger.lost(), 4);
  EXPECT_EQ(ledger.under_way(), 9);
}

TEST_F(CoordinatorTest, WhatAWorkerLeavesIsGivenToOthersAsIfItHadNotBeenGiven) {
  Start("consistency { mode { mode: NAME_ASYNC } }");
  Begin();
  proto::PeerMessage request;
  request.mutable_work_request()->set_count(4);
  Receive(3, request);
  Receive(3, Computed(0, {0, 2}, 1, 2));
  proto::PeerMessage leave;
  leave.mutable_leave()->set_applied(1);
  Receive(3, leave);
  units_below_ = 1;
  Close(1, 1);
  Receive(2, request);
  EXPECT_THAT(UnitsOf(sent_[2].back().work()), ElementsAre(1, 2, 3, 4));
  const proto::JobStatus::Ledger ledger = coordinator_->Status(now_).ledger();
  EXPECT_EQ(ledger.given(), 5);
  EXPECT_EQ(ledger.applied(), 1);
  EXPECT_EQ(ledger.under_way(), 4);
}

// applied + partial + lost = given, and what is not whole is given out again.
TEST_F(CoordinatorTest, AccountsForWhatALostWorkerHadBeenGiven) {
  Start("consistency { mode { mode: NAME_ASYNC } }");
  Begin();
  proto::PeerMessage request;
  request.mutable_work_request();
  Receive(3, request);  // 0
  Receive(3, request);  // 1
  Receive(2, request);  // 2
  Gone(3);
  units_below_ = 1;  // all blocks hold 0
  Close(1, 1);
  Receive(2, request);
  EXPECT_EQ(sent_[2].back().work().contribution(), 1);
  const proto::JobStatus::Ledger ledger = coordinator_->Status(now_).ledger();
  EXPECT_EQ(ledger.given(), 4);
  EXPECT_EQ(ledger.applied(), 1);
  EXPECT_EQ(ledger.lost(), 1);
  EXPECT_EQ(ledger.under_way(), 2);
}

TEST_F(CoordinatorTest, StatusTellsHowFarTheJobAndEachWorkerAre) {
  Start("consistency { mode { mode: NAME_ASYNC } } train { on_non_finite: ON_NON_FINITE_SKIP }");
  Begin();
  proto::PeerMessage request;
  request.mutable_work_request()->set_count(3);
  Receive(3, request);
  proto::PeerMessage computed = Computed(0, {0, 2}, 1, 2);
  Receive(3, computed);
  computed.mutable_progress()->set_unit(1);
  computed.mutable_progress()->set_clock(1);
  computed.mutable_progress()->set_staleness(1.5);
  computed.mutable_progress()->set_left_out(true);
  Receive(3, computed);
  const proto::JobStatus status = coordinator_->Status(now_);
  EXPECT_EQ(status.ledger().left_out(), 1);
  EXPECT_EQ(status.samples(), 8);
  EXPECT_DOUBLE_EQ(status.epoch(), 8.0 / 20);
  ASSERT_EQ(status.members_size(), 2);
  for (const proto::JobStatus::Member& member : status.members()) {
    const bool has_computed = member.rank() == 1;
    EXPECT_EQ(member.clock(), has_computed ? 2 : 0);
    EXPECT_EQ(member.staleness(), has_computed ? 1.5 : 0);
  }
}

TEST_F(CoordinatorTest, ATestThatWasNotBegunIsAskedForWithTheUnitAgain) {
  Start("consistency { mode { mode: NAME_ASYNC } }");
  Begin();
  proto::PeerMessage request;
  request.mutable_work_request();
  for (int64_t unit = 0; unit < 6; ++unit) Receive(2 + unit % 2, request);
  EXPECT_TRUE(sent_[3].back().work().evaluate());
  EXPECT_EQ(sent_[3].back().work().contribution(), 5);
  Gone(3);
  units_below_ = 0;
  Close(0, 0);
  std::set<int64_t> given, tested;
  for (int i = 0; i < 7; ++i) {
    Receive(2, request);
    given.insert(sent_[2].back().work().contribution());
    if (sent_[2].back().work().evaluate()) tested.insert(sent_[2].back().work().contribution());
  }
  EXPECT_THAT(given, ElementsAre(1, 3, 5, 6, 7, 8, 9));
  EXPECT_THAT(tested, ElementsAre(5));
}

// Contributions that only some blocks hold are given out again, first.
TEST_F(CoordinatorTest, OnArrivalWhatIsNotWholeIsGivenOutAgain) {
  begin_.resume.emplace();
  begin_.resume->set_step(5);
  begin_.resume->set_mode(proto::Manifest::MODE_ASYNC);
  begin_.resume->set_unit_samples(4);
  begin_.resume->set_block_values(8);
  begin_.resume->set_data_digest("data");
  proto::BlockState* block = begin_.resume->add_blocks();
  block->set_units_below(5);
  block = begin_.resume->add_blocks();
  block->set_block(1);
  block->set_units_below(2);
  block->add_units_above(3);
  Start("consistency { mode { mode: NAME_ASYNC } }");
  Begin();
  Restored();
  proto::PeerMessage request;
  request.mutable_work_request();
  std::vector<int64_t> given;
  for (int i = 0; i < 4; ++i) {
    Receive(2, request);
    given.push_back(sent_[2].back().work().contribution());
  }
  EXPECT_THAT(given, ElementsAre(2, 4, 5, 6));
}

TEST_F(CoordinatorTest, ADecisionClipsByTheNormOverAllShardsAndLeavesOutWhatIsNotFinite) {
  Start("optimizer { clip_grad_norm: 1 } train { on_non_finite: ON_NON_FINITE_SKIP }");
  Begin();
  proto::PeerMessage measured;
  const auto set = [&](int64_t step, double sum) {
    measured.mutable_question()->set_unit(step);
    proto::Question::Measured* m = measured.mutable_question()->mutable_measured();
    m->Clear();
    m->set_weight(2);
    proto::Question::Measured::Node* node = m->add_nodes();
    node->set_begin(0);
    node->set_end(1);
    node->set_sum(sum);
  };
  set(0, 100);  // norm 10 of the sum, 5 of the mean
  Receive(kOwnShard, measured);
  measured.mutable_question()->mutable_measured()->clear_nodes();
  Receive(1, measured);
  EXPECT_LAST_TO_SHARDS(has_decision());
  EXPECT_TRUE(sent_[1].back().decision().verdict().apply());
  EXPECT_DOUBLE_EQ(sent_[1].back().decision().verdict().factor(), 1 / (5 + 1e-6));
  measured.mutable_question()->set_unit(1);
  measured.mutable_question()->mutable_measured()->Clear();
  measured.mutable_question()->mutable_measured()->set_non_finite(3);
  Receive(1, measured);
  set(1, 1);
  Receive(kOwnShard, measured);
  EXPECT_FALSE(sent_[1].back().decision().verdict().apply());
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("step 1 is left out")));
}

TEST_F(CoordinatorTest, AStepOfWhichOnlyAPartIsMeasuredIsNotAppliedUnclipped) {
  for (const bool whole : {true, false}) {
    end_.reset();
    sent_.clear();
    Start("optimizer { clip_grad_norm: 1 }");
    Begin();
    proto::PeerMessage question;
    question.mutable_question()->set_unit(0);
    proto::Question::Measured* measured = question.mutable_question()->mutable_measured();
    measured->set_weight(8);
    if (whole) measured->add_nodes()->set_end(1);  // the one leaf of the sum of squares
    Receive(kOwnShard, question);
    Receive(1, question);
    EXPECT_EQ(sent_[1].back().has_decision(), whole);
    ASSERT_EQ(end_.has_value(), !whole);
    if (!whole) {
      EXPECT_THAT(*end_, IsError(absl::StatusCode::kInternal, HasSubstr("only a part of it")));
    }
  }
}

}  // namespace
}  // namespace rubato
