// Terms that go on with the values that all shards have kept of the one before.
#include "server/coordinator/coordinator_fixture.h"

namespace rubato {
namespace {

class CoordinatorKeptTest : public CoordinatorTest {
 protected:
  // Term 2, after one that shard 1 has ended in step `step`, with a checkpoint of step 1.
  void StartNextTerm(const std::string& more = "") {
    begin_.state.set_term(2);
    begin_.state.set_reason("shard 1 is gone");
    begin_.state.set_lost_shard(1);
    begin_.state.set_servers_lost(1);
    begin_.state.set_samples(24);
    begin_.state.set_seconds(7);
    begin_.stood_still = absl::Milliseconds(1500);
    begin_.state.mutable_lasting()->set_begun_term(1);
    begin_.state.mutable_lasting()->set_workers(2);
    begin_.state.mutable_lasting()->set_samples_rolled_back(8);
    begin_.path = "a checkpoint";
    proto::Manifest& checkpoint = begin_.resume.emplace();
    checkpoint.set_data_digest("data");
    checkpoint.set_step(1);
    checkpoint.set_samples(8);
    for (int block = 0; block < 2; ++block) {
      proto::BlockState* state = checkpoint.add_blocks();
      state->set_block(block);
      state->set_version(1);
    }
    Start(more);
  }

  // With its only block, of the term before: at that version in sync.
  static proto::PeerMessage Keeper(int shard, int64_t version, uint32_t term = 1) {
    proto::PeerMessage message = Shard(shard);
    proto::KeptValues* kept = message.mutable_registration()->mutable_kept();
    kept->mutable_view()->set_term(term);
    kept->mutable_view()->set_number(3);
    kept->mutable_view()->set_lineage(1);
    kept->mutable_view()->set_leaves(4);
    proto::BlockState* state = kept->add_blocks();
    state->set_block(shard);
    state->set_version(version);
    state->set_samples(version * 8);
    return message;
  }

  // On arrival, of contributions of two micro-batches.
  static proto::PeerMessage KeeperOnArrival(int shard, int64_t below,
                                            const std::vector<int64_t>& above) {
    proto::PeerMessage message = Keeper(shard, below + static_cast<int64_t>(above.size()));
    proto::KeptValues* kept = message.mutable_registration()->mutable_kept();
    kept->mutable_view()->mutable_mode()->set_mode(proto::Mode::NAME_ASYNC);
    kept->mutable_view()->set_leaves(2);
    kept->mutable_blocks(0)->set_units_below(below);
    for (const int64_t unit : above) {
      proto::UnitRun* run = kept->mutable_blocks(0)->add_unit_runs();
      run->set_begin(unit);
      run->set_end(unit + 1);
    }
    return message;
  }

  void Gather(const proto::PeerMessage& shard_0, const proto::PeerMessage& shard_1) {
    Receive(2, Worker());
    Receive(3, Worker());
    Receive(kOwnShard, shard_0);
    Receive(1, shard_1);
  }

  // That it begins at the checkpoint, for this reason.
  void ExpectGoesBack(const std::string& why) {
    ASSERT_FALSE(sent_[1].empty());
    EXPECT_FALSE(sent_[1].back().view().has_kept_term());
    Opened();
    Restored();
    EXPECT_EQ(
        warnings_.back(),
        "went back to step 1 (a checkpoint) because shard 1 is gone; 16 samples are trained "
        "again: " +
            why +
            "; training stood still for 1.5 s; nothing is to be done, and the next loss costs "
            "less with a shorter checkpoint.every");
    EXPECT_EQ(coordinator_->summary().samples_rolled_back, 8 + 16);
    EXPECT_EQ(journal_.back(), "back after: shard 1 is gone");
    EXPECT_TRUE(goes_back_);
  }
};

TEST_F(CoordinatorKeptTest, WhatAllHaveKeptGoesOnAndNothingIsRolledBack) {
  StartNextTerm();
  now_ += absl::Milliseconds(700);
  Gather(Keeper(0, 2), Keeper(1, 2));
  EXPECT_EQ(sent_[1].back().view().kept_term(), 1u);
  EXPECT_FALSE(sent_[1].back().view().has_restore_key());
  Opened();
  EXPECT_EQ(restores_, 0);
  ASSERT_TRUE(sent_[2].back().has_view());
  EXPECT_FALSE(sent_[2].back().view().has_kept_term()) << "workers have none";
  EXPECT_EQ(coordinator_->view().origin_unit(), 2);
  EXPECT_EQ(coordinator_->view().origin_samples(), 16);
  EXPECT_THAT(Assignments(2), ElementsAre("2 0:0-2 1:2-4"));
  EXPECT_EQ(warnings_.back(),
            "goes on at step 2 after shard 1 is gone; all shards have kept their values, nothing "
            "is trained again; training stood still for 2.2 s");
  EXPECT_EQ(journal_.back(), "goes on after: shard 1 is gone");
  EXPECT_FALSE(goes_back_);
  EXPECT_EQ(coordinator_->summary().samples_rolled_back, 8);
  EXPECT_EQ(coordinator_->summary().servers_lost, 1);
  EXPECT_EQ(kept_.back().begun_term(), 2u);
  EXPECT_EQ(kept_.back().begun_samples(), 16);
  EXPECT_EQ(kept_.back().samples_rolled_back(), 8);
  EXPECT_FALSE(coordinator_->has_trained());
  EXPECT_EQ(coordinator_->seconds(), 7);
}

// The next checkpoint is the newest by its name, too.
TEST_F(CoordinatorKeptTest, OnArrivalNoNumberIsGivenOutThatTheLastCheckpointHas) {
  for (const int64_t origin : {0, 1}) {
    begin_ = {};
    sent_.clear();
    StartNextTerm();
    begin_.resume->set_mode(proto::Manifest::MODE_ASYNC);
    begin_.resume->set_origin_unit(origin);
    begin_.resume->set_step(6);
    Start("consistency { mode { mode: NAME_ASYNC } }");
    Gather(KeeperOnArrival(0, 3, {}), KeeperOnArrival(1, 2, {}));
    ASSERT_NE(coordinator_->kept(), nullptr);
    EXPECT_EQ(coordinator_->kept()->step(), origin == 0 ? 6 : 3) << "of the same lineage alone";
  }
}

TEST_F(CoordinatorKeptTest, AStepThatOnlySomeBlocksHaveTakenIsDoneFirst) {
  StartNextTerm();
  Gather(Keeper(0, 3), Keeper(1, 2));
  EXPECT_EQ(sent_[1].back().view().kept_term(), 1u);
  Opened();
  EXPECT_EQ(coordinator_->view().origin_unit(), 2);
  EXPECT_EQ(coordinator_->view().mode().mode(), proto::Mode::NAME_SYNC);
}

TEST_F(CoordinatorKeptTest, AlsoBeforeAModeOnArrivalThatWasAskedFor) {
  for (const int64_t version : {3, 2}) {
    begin_ = {};
    sent_.clear();
    begin_.state.mutable_lasting()->mutable_mode()->set_mode(proto::Mode::NAME_ASYNC);
    begin_.state.mutable_lasting()->set_mode_until_samples(40);
    StartNextTerm();
    Gather(Keeper(0, version), Keeper(1, 2));
    Opened();
    const proto::View& view = coordinator_->view();
    EXPECT_EQ(view.mode().mode(), version > 2 ? proto::Mode::NAME_SYNC : proto::Mode::NAME_ASYNC);
    if (version > 2) {
      EXPECT_EQ(view.until_step(), 3);
    }
  }
}

TEST_F(CoordinatorKeptTest, BlocksFurtherApartHaveNoCommonStep) {
  StartNextTerm();
  Gather(Keeper(0, 4), Keeper(1, 2));
  ExpectGoesBack("blocks are at versions 2 to 4 of a lineage that began at 0");
}

TEST_F(CoordinatorKeptTest, OneThatHasLostItsValuesTakesAllBack) {
  StartNextTerm();
  Gather(Keeper(0, 2), Shard(1));
  ExpectGoesBack("shard 1 has lost its values");
}

TEST_F(CoordinatorKeptTest, ValuesOfAnEarlierTermAreOfNoUse) {
  StartNextTerm();
  begin_.state.set_term(3);
  begin_.state.mutable_lasting()->set_begun_term(2);
  Start();
  Gather(Keeper(0, 2, 2), Keeper(1, 2, 1));
  ExpectGoesBack("shard 1 has values of term 1, and term 2 was the last");
}

TEST_F(CoordinatorKeptTest, NorAreThoseOfOtherBlocks) {
  StartNextTerm();
  proto::PeerMessage other = Keeper(1, 2);
  other.mutable_registration()->mutable_kept()->mutable_blocks(0)->set_block(0);
  Gather(Keeper(0, 2), other);
  ExpectGoesBack("shard 1 has values of other blocks");
}

TEST_F(CoordinatorKeptTest, AShardThatHasNotHeardOfTheNextLineageIsWhereItBegins) {
  for (const bool to_sync : {true, false}) {
    begin_ = {};
    sent_.clear();
    if (to_sync) *begin_.state.mutable_lasting()->mutable_mode() = SyncMode();
    begin_.state.mutable_lasting()->set_mode_until_samples(40);
    StartNextTerm("consistency { mode { mode: NAME_ASYNC } }");
    // Five contributions, of which block 1 lacks one.
    proto::PeerMessage behind = KeeperOnArrival(1, 5, {});
    behind.mutable_registration()->mutable_kept()->mutable_blocks(0)->set_version(4);
    behind.mutable_registration()->mutable_kept()->add_decisions()->set_unit(4);
    proto::PeerMessage ahead = to_sync ? Keeper(0, 5) : KeeperOnArrival(0, 5, {});
    proto::View* view = ahead.mutable_registration()->mutable_kept()->mutable_view();
    view->set_lineage(2);
    view->set_origin_unit(5);
    view->set_origin_samples(18);
    Gather(ahead, behind);
    EXPECT_EQ(sent_[1].back().view().kept_term(), 1u);
    Opened();
    EXPECT_EQ(OnArrival(coordinator_->view().mode()), !to_sync);
    EXPECT_EQ(coordinator_->view().origin_unit(), 5);
    EXPECT_EQ(coordinator_->view().origin_samples(), 18);
    ASSERT_NE(coordinator_->kept(), nullptr);
    const proto::BlockState& block = coordinator_->kept()->blocks(1);
    EXPECT_EQ(block.version(), 5);
    EXPECT_EQ(block.skipped(), 1);
    EXPECT_EQ(block.units_below(), 5);
    EXPECT_EQ(block.samples(), 40) << "it has no more than it had";
  }
}

// The coordinator died when it had told a shard of the next lineage and not kept that it had; its
// successor died when all shards had its first view, which says nothing of that.
TEST_F(CoordinatorKeptTest, AChangeOfModeThatWasNotKeptIsCountedOnce) {
  StartNextTerm();
  begin_.state.mutable_lasting()->set_switches(3);
  begin_.state.mutable_lasting()->set_lineage(1);
  Start();
  proto::PeerMessage ahead = Keeper(0, 2);
  proto::View* view = ahead.mutable_registration()->mutable_kept()->mutable_view();
  view->set_lineage(2);
  view->set_origin_unit(2);
  view->set_origin_samples(16);
  Gather(ahead, Keeper(1, 2));
  EXPECT_EQ(sent_[1].back().view().kept_term(), 1u);
  EXPECT_EQ(coordinator_->summary().switches, 4);
  ASSERT_FALSE(kept_.empty()) << "before a shard has the view";
  EXPECT_EQ(kept_.back().switches(), 4);
  EXPECT_EQ(kept_.back().begun_term(), 1u);

  *begin_.state.mutable_lasting() = kept_.back();
  begin_.state.set_term(3);
  sent_.clear();
  Start();
  Gather(ahead, Keeper(1, 2));
  Opened();
  EXPECT_EQ(coordinator_->summary().switches, 4);
  EXPECT_EQ(kept_.back().switches(), 4);
  EXPECT_EQ(kept_.back().begun_term(), 3u);
  EXPECT_EQ(kept_.back().lineage(), 1u);
}

// Nobody has trained in it, and the job changes its mode once more.
TEST_F(CoordinatorKeptTest, AChangeOfModeBehindACheckpointIsNotCounted) {
  StartNextTerm();
  begin_.state.mutable_lasting()->set_lineage(1);
  Start();
  proto::PeerMessage ahead = Keeper(0, 3);
  ahead.mutable_registration()->mutable_kept()->mutable_view()->set_lineage(2);
  ahead.mutable_registration()->mutable_kept()->mutable_view()->set_origin_unit(3);
  Gather(ahead, KeeperOnArrival(1, 4, {}));
  ExpectGoesBack("shard 1 has block 1 at version 4, and another shard begins a lineage at 3");
  EXPECT_EQ(coordinator_->summary().switches, 0);
}

TEST_F(CoordinatorKeptTest, WhatIsBehindTheNextLineagesBeginningIsNotOfIt) {
  StartNextTerm();
  proto::PeerMessage ahead = Keeper(0, 3);
  ahead.mutable_registration()->mutable_kept()->mutable_view()->set_lineage(2);
  ahead.mutable_registration()->mutable_kept()->mutable_view()->set_origin_unit(3);
  Gather(ahead, KeeperOnArrival(1, 4, {}));
  ExpectGoesBack("shard 1 has block 1 at version 4, and another shard begins a lineage at 3");
}

TEST_F(CoordinatorKeptTest, ATermThatOnlySomeShardsHaveSeenTheBeginningOfGoesOn) {
  for (const int64_t version : {3, 2}) {
    begin_ = {};
    sent_.clear();
    StartNextTerm();
    begin_.state.set_term(3);
    Start();
    // It was to go on with step 2.
    proto::PeerMessage ahead = Keeper(0, 2, 2);
    proto::View* view = ahead.mutable_registration()->mutable_kept()->mutable_view();
    view->set_number(1);
    view->set_kept_term(1);
    view->set_origin_unit(2);
    view->set_origin_samples(16);
    Gather(ahead, Keeper(1, version));
    EXPECT_EQ(sent_[1].back().view().kept_term(), 1u);
    Opened();
    EXPECT_EQ(coordinator_->view().origin_unit(), 2);
    EXPECT_EQ(coordinator_->view().origin_samples(), 16);
    EXPECT_EQ(coordinator_->kept()->blocks(1).version(), version);
  }
}

TEST_F(CoordinatorKeptTest, OneThatHasBegunAnewHasOtherValues) {
  StartNextTerm();
  begin_.state.set_term(3);
  Start();
  Gather(Keeper(0, 0, 2), Keeper(1, 2));
  Opened();
  EXPECT_THAT(sent_[1].back().restore().blocks_size(), 1) << "it begins at the checkpoint";
}

TEST_F(CoordinatorKeptTest, OnArrivalWhatOnlySomeBlocksHoldIsGivenAgain) {
  StartNextTerm("consistency { mode { mode: NAME_ASYNC } }");
  Gather(KeeperOnArrival(0, 2, {4}), KeeperOnArrival(1, 3, {}));
  EXPECT_EQ(sent_[1].back().view().kept_term(), 1u);
  Opened();
  std::vector<int64_t> given;
  for (int i = 0; i < 3; ++i) {
    proto::PeerMessage request;
    request.mutable_work_request();
    Receive(2, request);
    given.push_back(sent_[2].back().work().contribution());
  }
  EXPECT_THAT(given, ElementsAre(2, 3, 4));
}

TEST_F(CoordinatorKeptTest, AVerdictOnAStepThatSomeHaveTakenHoldsForTheOthers) {
  const std::string clips = "optimizer { clip_grad_norm: 1 }";
  StartNextTerm(clips);
  proto::PeerMessage ahead = Keeper(0, 3), behind = Keeper(1, 2);
  for (proto::PeerMessage* shard : {&ahead, &behind}) {
    shard->mutable_registration()->mutable_kept()->mutable_view()->set_verdict_steps(true);
  }
  Gather(ahead, behind);
  ExpectGoesBack("some blocks have taken step 2, and no shard knows the verdict on it");

  sent_.clear();
  begin_ = {};
  StartNextTerm(clips);
  proto::Decision* verdict = ahead.mutable_registration()->mutable_kept()->add_decisions();
  verdict->set_unit(2);
  verdict->mutable_verdict()->set_factor(0.5);
  Gather(ahead, behind);
  Opened();
  proto::PeerMessage question;
  question.mutable_question()->set_unit(2);
  question.mutable_question()->mutable_measured()->set_weight(8);
  Receive(1, question);
  EXPECT_EQ(sent_[1].back().decision().verdict().factor(), 0.5);
}

TEST_F(CoordinatorKeptTest, AShardThatTellsNonsenseIsRefused) {
  StartNextTerm();
  proto::PeerMessage shard = Keeper(1, 2);
  shard.mutable_registration()->mutable_kept()->mutable_blocks(0)->set_version(-1);
  Receive(1, shard);
  EXPECT_TRUE(sent_[1].back().stop().refused());
  EXPECT_THAT(Reason(1), HasSubstr("kept.blocks.version: found -1, expected 0 to "));
}

}  // namespace
}  // namespace rubato
