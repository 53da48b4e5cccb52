// What ends a term and what outlives it.
#include "server/coordinator/coordinator_fixture.h"

namespace rubato {
namespace {

proto::PeerMessage Failed(int exit_code) {
  proto::PeerMessage message;
  message.mutable_failure()->set_exit_code(exit_code);
  message.mutable_failure()->set_reason("this server is stuck");
  return message;
}

class CoordinatorTermsTest : public CoordinatorTest {
 protected:
  // The term after one that ended at 24 samples, with what was kept of it.
  void StartNextTerm(const std::string& more = "") {
    begin_.state.set_term(2);
    begin_.state.set_samples(24);
    begin_.state.set_reason("shard 1 is gone");
    begin_.state.set_lost_shard(1);
    begin_.state.set_servers_lost(1);
    if (!kept_.empty()) *begin_.state.mutable_lasting() = kept_.back();
    begin_.state.mutable_lasting()->set_samples_rolled_back(8);
    sent_.clear();
    kept_.clear();
    end_.reset();
    Start(more);
  }

  void ExpectGoesBack(int shard) {
    ASSERT_TRUE(end_.has_value());
    EXPECT_EQ(lost_shard_, shard);
    for (const PeerId peer : {PeerId{2}, PeerId{3}}) {
      EXPECT_TRUE(sent_[peer].back().stop().goes_back());
    }
  }
};

TEST_F(CoordinatorTermsTest, AShardThatIsLostEndsTheTermAndAllComeBack) {
  Start();
  Begin();
  Gone(1);
  ExpectGoesBack(1);
  EXPECT_TRUE(sent_[kOwnShard].back().stop().goes_back());
  EXPECT_THAT(warnings_.back(), HasSubstr("shard 1 (host pid 1) is gone: its connection broke at "
                                          "step 0; the job goes back to its beginning"));
}

TEST_F(CoordinatorTermsTest, SoDoesOneThatSaysThatItFails) {
  Start();
  Begin();
  Receive(1, Failed(1));
  ExpectGoesBack(1);
}

TEST_F(CoordinatorTermsTest, SoDoesOneThatIsNotHeardOf) {
  Start();
  Begin();
  is_shard_silent_ = true;
  Work(5.2, {});
  ExpectGoesBack(1);
}

TEST_F(CoordinatorTermsTest, SoDoesOneThatIsLostBeforeTheTrainingHasBegun) {
  Start();
  Receive(2, Worker());
  Receive(3, Worker());
  Receive(kOwnShard, Shard(0));
  Receive(1, Shard(1));  // all open the first view
  Gone(1);
  ExpectGoesBack(1);
}

TEST_F(CoordinatorTermsTest, SoDoesAStreamThatBreaksWhileItRestoresAndNoneLater) {
  begin_.initial = true;
  Start();
  Begin();
  Handle(coordinator::RestoreBroke{absl::UnavailableError("Socket closed")}).IgnoreError();
  ExpectGoesBack(0);

  end_.reset();
  sent_.clear();
  Start();
  Begin();
  Restored();
  ASSERT_TRUE(sent_[2].back().has_view());
  Handle(coordinator::RestoreBroke{absl::UnavailableError("Socket closed")}).IgnoreError();
  EXPECT_FALSE(end_.has_value()) << "the shard's call tells";
}

// The coordinator has not failed: whoever starts the job is to look at the shards.
TEST_F(CoordinatorTermsTest, AShardThatCannotBeGivenItsValuesStopsAJobThatMayNotGoBack) {
  begin_.initial = true;
  Start("cluster { max_restarts: 0 }");
  Begin();
  Handle(coordinator::RestoreBroke{absl::UnavailableError("Socket closed")}).IgnoreError();
  ASSERT_TRUE(end_.has_value());
  EXPECT_TRUE(IsStoppedByOthers(*end_)) << *end_;
  EXPECT_THAT(end_->ToString(), HasSubstr("a shard cannot be given its values: Socket closed"));
}

// Its process lives, and a disk or a network file system keeps its thread.
TEST_F(CoordinatorTermsTest, SoDoesOneThatReadsItsPartForEver) {
  begin_.path = begin_.shared_path = "a checkpoint";
  proto::Manifest& checkpoint = begin_.resume.emplace();
  checkpoint.set_data_digest("data");
  checkpoint.add_blocks();
  Start();
  Begin();
  proto::PeerMessage restored;
  restored.mutable_shard_restored();
  Receive(kOwnShard, restored);
  Work(120, {});
  EXPECT_FALSE(end_.has_value());
  Work(2, {});
  ExpectGoesBack(1);
  EXPECT_THAT(warnings_.back(),
              HasSubstr("shard 1 (host pid 1) has not read its part of a checkpoint within 2m1s: "
                        "its disk, or its way to the folder, stands still; the job goes back to"));
}

// max_restarts in a row.
TEST_F(CoordinatorTermsTest, TheJobEndsWhereGoingBackIsInVain) {
  for (const int before : {0, 2, 3}) {
    StartNextTerm();
    begin_.state.set_terms_in_vain(before);
    Start();
    Begin();
    Gone(1);
    ASSERT_TRUE(end_.has_value());
    EXPECT_EQ(lost_shard_.has_value(), before < 3) << before;
    lost_shard_.reset();
  }
  // One that has trained is not in vain.
  StartNextTerm();
  Start();
  Begin();
  Receive(2, Computed(0, {0, 2}, 1, 2));
  Receive(3, Computed(0, {2, 4}, 1, 2));
  EXPECT_TRUE(coordinator_->has_trained());
  Gone(1);
  ExpectGoesBack(1);
}

TEST_F(CoordinatorTermsTest, AResultThatComesOffEndsTheJobWhoeverIsLostMeanwhile) {
  for (const bool comes_off : {true, false}) {
    end_.reset();
    lost_shard_.reset();
    sent_.clear();
    collect_.reset();
    Start("train { until { steps: 1 } }");
    Begin();
    Receive(2, Computed(0, {0, 2}, 1, 2));
    Receive(3, Computed(0, {2, 4}, 1, 2));
    Receive(2, Idle());
    Receive(3, Idle());
    SaveLast();
    proto::PeerMessage tested = Evaluated(1);
    for (const bool is_final : {false, true}) {
      tested.mutable_evaluation()->set_is_final(is_final);
      Receive(2, tested);
    }
    for (const PeerId shard : {kOwnShard, PeerId{1}}) {
      proto::PeerMessage report;
      report.mutable_shard_report()->add_blocks()->set_block(static_cast<int64_t>(shard));
      Receive(shard, report);
    }
    ASSERT_TRUE(collect_.has_value());
    Gone(1);
    EXPECT_FALSE(end_.has_value());
    const absl::Status broken = absl::AbortedError("shard 1: Socket closed");
    Handle(coordinator::Collected{comes_off ? absl::OkStatus() : broken}).IgnoreError();
    ASSERT_TRUE(end_.has_value());
    EXPECT_EQ(end_->ok(), comes_off);
    EXPECT_EQ(lost_shard_.has_value(), !comes_off);
  }
}

TEST_F(CoordinatorTermsTest, TheJobEndsWhereNobodyStartsAServerAgain) {
  Start("cluster { max_restarts: 0 }");
  Begin();
  Gone(1);
  ASSERT_TRUE(end_.has_value());
  EXPECT_FALSE(lost_shard_.has_value());
  EXPECT_FALSE(sent_[2].back().stop().goes_back());
}

TEST_F(CoordinatorTermsTest, TheJobEndsWhereItWouldNotHelpOrASignalEndsIt) {
  Start();
  Begin();
  Receive(1, Failed(2));
  ASSERT_TRUE(end_.has_value());
  EXPECT_FALSE(lost_shard_.has_value());

  end_.reset();
  sent_.clear();
  Start();
  Begin();
  Stop(absl::CancelledError("interrupted"));
  Gone(1);
  ASSERT_TRUE(end_.has_value());
  EXPECT_FALSE(lost_shard_.has_value());
}

TEST_F(CoordinatorTermsTest, WhatWasAskedForIsKeptBeforeItIsAnswered) {
  Start();
  Begin();
  ASSERT_EQ(kept_.size(), 1u);
  EXPECT_EQ(kept_.back().workers(), 2);
  proto::Mode async;
  async.set_mode(proto::Mode::NAME_ASYNC);
  bool kept = false;
  for (const auto& outcome : coordinator_->Handle(coordinator::SwitchRequested{async}, now_)) {
    if (std::holds_alternative<coordinator::Keep>(outcome)) kept = true;
    EXPECT_TRUE(kept || !std::holds_alternative<coordinator::Answer>(outcome));
  }
  EXPECT_TRUE(kept);
  Handle(coordinator::StopRequested{absl::OkStatus(), "asked to"}).IgnoreError();
  EXPECT_EQ(kept_.back().mode().mode(), proto::Mode::NAME_ASYNC);
  EXPECT_EQ(kept_.back().mode_until_samples(), 40);
  EXPECT_EQ(kept_.back().stop(), "asked to");
}

TEST_F(CoordinatorTermsTest, AStopThatComesWhenTheTermIsOverIsKeptToo) {
  Start();
  Begin();
  Gone(1);
  Handle(coordinator::StopRequested{absl::OkStatus(), "asked to"}).IgnoreError();
  EXPECT_EQ(kept_.back().stop(), "asked to");
}

// It is met again.
TEST_F(CoordinatorTermsTest, WhatTheTrainingItselfEndsWithIsNotKept) {
  Start();
  Begin();
  Handle(coordinator::StopRequested{absl::OkStatus(), "the target is met", /*lasts=*/false})
      .IgnoreError();
  EXPECT_EQ(coordinator_->summary().stopped, "the target is met");
  EXPECT_EQ(coordinator_->Status(now_).stopped(), "the target is met");
  EXPECT_TRUE(kept_.back().stop().empty());
}

TEST_F(CoordinatorTermsTest, WhatAPersonAsksForMeanwhileIsKept) {
  Start();
  Begin();
  Handle(coordinator::StopRequested{absl::OkStatus(), "the target is met", /*lasts=*/false})
      .IgnoreError();
  Handle(coordinator::StopRequested{absl::OkStatus(), "asked to"}).IgnoreError();
  EXPECT_EQ(coordinator_->summary().stopped, "the target is met");
  EXPECT_EQ(kept_.back().stop(), "asked to");
}

TEST_F(CoordinatorTermsTest, AStopThatComesWhenAllIsTrainedIsKeptForOneThatGoesBack) {
  Start();
  Begin();
  for (int64_t step = 0; step < 6; ++step) {
    const int64_t samples = step % 3 == 2 ? 1 : 2;
    Receive(2, Computed(step, {0, 2}, 1, samples));
    Receive(3, Computed(step, {2, 4}, 1, samples));
  }
  Receive(2, Idle());
  Receive(3, Idle());
  ASSERT_TRUE(coordinator_->is_ending());
  Handle(coordinator::StopRequested{absl::OkStatus(), "the target is met", /*lasts=*/false})
      .IgnoreError();
  EXPECT_TRUE(kept_.back().stop().empty());
  Handle(coordinator::StopRequested{absl::OkStatus(), "asked to"}).IgnoreError();
  EXPECT_EQ(kept_.back().stop(), "asked to");
  EXPECT_EQ(coordinator_->summary().stopped, "");
}

TEST_F(CoordinatorTermsTest, ASignalIsNotKept) {
  Start();
  Begin();
  Stop(absl::CancelledError("interrupted"));
  EXPECT_TRUE(kept_.back().stop().empty());
}

TEST_F(CoordinatorTermsTest, TheNextTermSaysWhatWasLostAndCountsOn) {
  Start();
  Begin();
  Gone(3);
  Close(0, 0);
  EXPECT_EQ(kept_.back().workers(), 1);
  EXPECT_EQ(kept_.back().workers_lost(), 1);
  StartNextTerm();
  Receive(kOwnShard, Shard(0));
  Receive(2, Worker());
  EXPECT_THAT(coordinator_->Status(now_).waits(), ElementsAre("going on waits for shard 1"));
  EXPECT_THAT(coordinator_->Status(now_).missing_shards(), ElementsAre(1));
  EXPECT_EQ(coordinator_->Status(now_).lost_shard(), 1);
  ASSERT_EQ(coordinator_->Status(now_).servers_size(), 1) << "the one that is here";
  EXPECT_EQ(coordinator_->Status(now_).servers(0).shard(), 0);
  EXPECT_EQ(coordinator_->Status(now_).servers(0).process(), "host pid 0");
  Receive(1, Shard(1));
  Opened();
  EXPECT_EQ(coordinator_->view().term(), 2u);
  EXPECT_EQ(coordinator_->view().number(), 1u);
  EXPECT_THAT(warnings_.back(), HasSubstr("went back to step 0 (the beginning) because shard 1 is "
                                          "gone; 24 samples are trained again"));
  EXPECT_EQ(coordinator_->summary().servers_lost, 1);
  EXPECT_EQ(coordinator_->summary().samples_rolled_back, 8 + 24);
  EXPECT_EQ(coordinator_->Status(now_).samples_rolled_back(), 8 + 24);
  EXPECT_EQ(kept_.back().samples_rolled_back(), 8 + 24);
  EXPECT_EQ(coordinator_->summary().workers_lost, 1);
}

// What a worker has not sent goes with it, and what all have not sent goes with a term.
TEST_F(CoordinatorTermsTest, ResidualsThatAreLostAreCountedInAllTerms) {
  const std::string top_k = "wire { push { codec: CODEC_TOPK } }";
  proto::Manifest& checkpoint = begin_.resume.emplace();
  checkpoint.set_data_digest("data");
  checkpoint.add_blocks();
  checkpoint.set_residuals(4);  // of another run
  Start(top_k);
  Begin();
  Restored();
  EXPECT_EQ(coordinator_->summary().residuals_lost, 4);
  Gone(3);
  Close(0, 0);
  Gone(1);
  for (const bool has_begun : {true, false}) {
    StartNextTerm(top_k);
    Begin();
    EXPECT_EQ(coordinator_->summary().residuals_lost, 4 + 1 + 1) << has_begun;
  }
  Restored();
  StartNextTerm(top_k);
  EXPECT_EQ(coordinator_->summary().residuals_lost, 4 + 1 + 1 + 2);
}

TEST_F(CoordinatorTermsTest, AStopIsKeptWhileAllComeBackAndThenHeeded) {
  StartNextTerm();
  Receive(kOwnShard, Shard(0));
  Handle(coordinator::StopRequested{absl::OkStatus(), "asked to"}).IgnoreError();
  EXPECT_EQ(kept_.back().stop(), "asked to");
  EXPECT_FALSE(collect_.has_value()) << "what was trained before is not lost";
  Receive(1, Shard(1));
  Receive(2, Worker());
  Receive(3, Worker());
  Opened();
  EXPECT_EQ(coordinator_->summary().stopped, "asked to");
  Close(0, 0);
  EXPECT_EQ(coordinator_->view().until_step(), 1);
}

TEST_F(CoordinatorTermsTest, AJobWithNothingLeftToTrainIsNotStopped) {
  for (const int64_t step : {4, 6}) {
    proto::Manifest& checkpoint = begin_.resume.emplace();
    checkpoint.set_step(step);
    checkpoint.set_samples(step == 6 ? 40 : 28);
    checkpoint.set_mode(proto::Manifest::MODE_SYNC);
    checkpoint.set_unit_samples(8);
    checkpoint.set_data_digest("data");
    checkpoint.add_blocks()->set_version(step);
    begin_.state.mutable_lasting()->set_stop("asked to");
    StartNextTerm();
    Receive(kOwnShard, Shard(0));
    Receive(1, Shard(1));
    Receive(2, Worker());
    EXPECT_EQ(coordinator_->Status(now_).stopped(), "asked to");
    Receive(3, Worker());
    Opened();
    EXPECT_EQ(coordinator_->summary().stopped, step == 6 ? "" : "asked to");
    EXPECT_EQ(coordinator_->Status(now_).stopped(), step == 6 ? "" : "asked to");
    kept_.clear();
  }
}

TEST_F(CoordinatorTermsTest, AShardMayBeBackBeforeItsEndIsNoticed) {
  for (const int term : {1, 2}) {
    if (term == 1) Start();
    if (term == 2) StartNextTerm();
    Receive(1, Shard(1));
    Receive(4, Shard(1));
    EXPECT_EQ(sent_[4].back().stop().exit_code(), 1) << term;
    EXPECT_TRUE(sent_[4].back().stop().refused());
    Gone(1);
    Receive(5, Shard(1));
    EXPECT_THAT(sent_[5], IsEmpty()) << "it is taken";
  }
}

TEST_F(CoordinatorTermsTest, TwoShardsOfOneNumberAreAMistakeIfBothAreAlive) {
  Start();
  Receive(1, Shard(1));
  now_ += absl::Seconds(20);
  Tick();  // with a heartbeat, as that of who may have died since
  Receive(4, Shard(1));
  Tick();
  Receive(5, Shard(1));
  EXPECT_EQ(sent_[5].back().stop().exit_code(), 1);
  now_ += absl::Seconds(1);
  Tick();
  Receive(6, Shard(1));
  EXPECT_EQ(sent_[6].back().stop().exit_code(), 2);
  now_ += absl::Seconds(20);
  Receive(9, Shard(1));
  EXPECT_EQ(sent_[9].back().stop().exit_code(), 1) << "who has died since may have beaten till now";
  // The coordinator is in the process of shard 0.
  Receive(kOwnShard, Shard(0));
  Receive(7, Shard(0));
  EXPECT_EQ(sent_[7].back().stop().exit_code(), 2);

  Start("cluster { max_restarts: 0 }");
  Receive(1, Shard(1));
  Receive(8, Shard(1));
  EXPECT_EQ(sent_[8].back().stop().exit_code(), 2) << "nobody has started it again";
}

// Shard 0 was started without the folder of the run, which it would begin once more.
TEST_F(CoordinatorTermsTest, WhoHasTakenPartInATermLetsNoFirstOneBegin) {
  Start();
  Receive(2, Worker());
  proto::PeerMessage shard = Shard(1);
  shard.mutable_registration()->set_last_term(3);
  Receive(1, shard);
  ASSERT_TRUE(end_.has_value());
  EXPECT_EQ(ExitCode(*end_), 2);
  EXPECT_FALSE(lost_shard_.has_value()) << "no other term follows";
  EXPECT_EQ(end_->message(),
            "shard 1 (host pid 1) has taken part in term 3 of this job, and this server would "
            "begin it anew: start shard 0 with --run-dir of the run that goes on, or end its other "
            "processes first");
  for (const PeerId peer : {1, 2}) {
    EXPECT_TRUE(sent_[peer].back().stop().goes_back()) << "they wait for the right one";
  }
}

// On a full disk a term's number is not kept: the same run may take it twice.
TEST_F(CoordinatorTermsTest, OneThatGoesOnTakesWhoeverHasTakenPart) {
  for (const uint32_t last_term : {1u, 2u, 3u}) {
    StartNextTerm();
    Receive(2, Worker());
    proto::PeerMessage shard = Shard(1);
    shard.mutable_registration()->set_last_term(last_term);
    Receive(1, shard);
    EXPECT_FALSE(end_.has_value());
    EXPECT_THAT(sent_[1], IsEmpty());
  }
}

TEST_F(CoordinatorTermsTest, WhoComesBackInATermHasTakenPartInIt) {
  StartNextTerm();
  Begin();
  Gone(3);
  Close(0, 0);
  proto::PeerMessage worker = Worker();
  worker.mutable_registration()->set_last_term(2);
  Receive(4, worker);
  Close(0, 0);
  EXPECT_EQ(coordinator_->view().members_size(), 2);
  // That of a run which is further.
  worker.mutable_registration()->set_last_term(3);
  Receive(5, worker);
  EXPECT_EQ(sent_[5].back().stop().exit_code(), 2);
  EXPECT_THAT(Reason(5), HasSubstr("this process has taken part in term 3 of its job; this one "
                                   "is in term 2"));
  EXPECT_FALSE(end_.has_value());
}

TEST_F(CoordinatorTermsTest, AJobThatBeginsAnewTrainsOnTheSameData) {
  Start();
  Begin();
  Gone(1);
  StartNextTerm();
  Receive(2, Worker(-1, "other data"));
  EXPECT_EQ(sent_[2].back().stop().exit_code(), 2);
  EXPECT_THAT(Reason(2), HasSubstr("the job was begun on other data than this worker's"));
  Receive(3, Worker());
  EXPECT_THAT(sent_[3], IsEmpty());
}

TEST_F(CoordinatorTermsTest, AWorkerThatFailsWhileAllComeBackIsLostAndNoMore) {
  StartNextTerm();
  Receive(2, Worker());
  Receive(2, Failed(1));
  EXPECT_FALSE(end_.has_value());
  EXPECT_THAT(warnings_.back(), HasSubstr("worker 0 (host pid 0) failed: "));
  Receive(5, Shard(1));
  Receive(5, Failed(1));
  EXPECT_FALSE(end_.has_value());
  Receive(6, Shard(1));
  Receive(6, Failed(2));
  EXPECT_TRUE(end_.has_value()) << "repeating cannot help";
}

TEST_F(CoordinatorTermsTest, HeartbeatsOfAnotherTermCountForNothing) {
  Start();
  begin_.state.set_term(2);
  Start();
  Begin();
  proto::HeartbeatRequest request;
  request.set_job_digest(kDigest);
  request.set_rank(0);
  request.set_incarnation(1);
  request.set_term(1);
  now_ += absl::Seconds(3);
  Handle(coordinator::Heartbeat{request}).IgnoreError();
  const auto silent = [this] { return coordinator_->Status(now_).members(0).seconds_silent(); };
  EXPECT_DOUBLE_EQ(silent(), 3);
  request.set_term(2);
  Handle(coordinator::Heartbeat{request}).IgnoreError();
  EXPECT_DOUBLE_EQ(silent(), 0);
}

}  // namespace
}  // namespace rubato
