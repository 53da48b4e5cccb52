// The beginning of a job.
#include "server/coordinator/coordinator_fixture.h"

namespace rubato {
namespace {

TEST_F(CoordinatorTest, InstallsAViewWhenAllAreThereInAnyOrder) {
  Start();
  Begin();
  ASSERT_EQ(sent_[3].size(), 1u);
  const proto::View& view = sent_[3][0].view();
  EXPECT_EQ(view.your_rank(), 1);
  EXPECT_THAT(ShardAddresses(view), ElementsAre("host:0", "host:1"));
  EXPECT_EQ(view.until_step(), 6);
  ASSERT_EQ(view.members_size(), 2);
  EXPECT_THAT(Assignments(3), ElementsAre("0 0:0-2 1:2-4"));
}

TEST_F(CoordinatorTest, GivesEachWorkerTheRankItAsksForIfItIsFree) {
  Start();
  Receive(2, Worker(1));
  Receive(3, Worker(1));
  Receive(kOwnShard, Shard(0));
  Receive(1, Shard(1));
  Opened();
  EXPECT_EQ(sent_[2][0].view().your_rank(), 1);
  EXPECT_EQ(sent_[3][0].view().your_rank(), 0);
}

TEST_F(CoordinatorTest, CountsStepsAsGivenWhateverTheShortOnes) {
  Start("train { until { steps: 4 } }");
  Begin();
  EXPECT_EQ(sent_[2][0].view().until_step(), 4);
}

TEST_F(CoordinatorTest, RefusesEachMistakeWithItsReason) {
  Start();
  Receive(kOwnShard, Shard(0));
  Receive(2, Worker());
  proto::PeerMessage other_job = Worker();
  other_job.mutable_registration()->set_job_digest("fedcba9876543210");
  proto::PeerMessage other_version = Worker();
  other_version.mutable_registration()->set_version("0.9");
  proto::PeerMessage other_model = Worker();
  other_model.mutable_registration()
      ->mutable_worker()
      ->mutable_layout()
      ->mutable_parameters(0)
      ->set_name("x");
  const std::vector<std::pair<proto::PeerMessage, std::string>> mistakes = {
      {other_job, "another job"},         {other_version, "version 0.9"},
      {other_model, "parameters differ"}, {Worker(-1, "other data"), "data differ"},
      {Shard(0), "already served"},       {Shard(2), "shards are 0 to 1"},
      {Shard(-1), "no shard -1"},         {Idle(), "not registered"},
  };
  PeerId peer = 10;
  for (const auto& [message, reason] : mistakes) {
    Receive(++peer, message);
    EXPECT_THAT(Reason(peer), HasSubstr(reason));
    EXPECT_NE(sent_[peer].back().stop().exit_code(), 0);
  }
  // The others are not disturbed.
  Receive(3, Worker());
  Receive(1, Shard(1));
  EXPECT_EQ(sent_[1].size(), 1u);
  Receive(20, Worker());
  EXPECT_THAT(sent_[20], IsEmpty());
  Receive(21, Worker());
  EXPECT_THAT(Reason(21), HasSubstr("cluster.workers is at most 3"));
}

// It may be the only one with the wrong data: when it has left, nobody is compared with it.
TEST_F(CoordinatorTest, WhoHasLeftBeforeTheStartDecidesNothing) {
  Start();
  Receive(2, Worker(0, "wrong data"));
  Receive(3, Worker(0, "data"));
  EXPECT_THAT(Reason(3), HasSubstr("data differ from those of worker 0"));
  Gone(2);
  for (const PeerId peer : {4, 5}) {
    Receive(peer, Worker(-1, "data"));
    EXPECT_EQ(Reason(peer), "");
  }
  Receive(kOwnShard, Shard(0));
  Receive(1, Shard(1));
  Gone(4);
  Gone(5);
  Receive(6, Worker(-1, "other data"));
  EXPECT_THAT(Reason(6), HasSubstr("data differ from those of the workers before it"));
}

TEST_F(CoordinatorTest, KeepsWhatTheFirstWorkerThatStaysTellsOfTheDataWhenTheTrainingBegins) {
  const auto describing = [](const std::string& target) {
    proto::PeerMessage worker = Worker();
    worker.mutable_registration()->mutable_worker()->mutable_data()->set_target(target);
    return worker;
  };
  Start();
  Receive(9, describing("of one that goes"));
  Gone(9);
  Receive(2, describing("of the first"));
  Receive(3, describing("of the second"));
  Receive(kOwnShard, Shard(0));
  Receive(1, Shard(1));
  EXPECT_THAT(described_, IsEmpty()) << "the job may still come to nothing";
  Opened();
  EXPECT_THAT(described_, ElementsAre("of the first"));
  Receive(4, describing("of one that comes late"));
  EXPECT_THAT(described_, ElementsAre("of the first"));
}

TEST_F(CoordinatorTest, KeepsNothingWhereWorkersTellNothingOfTheData) {
  Start();
  Begin();
  EXPECT_THAT(described_, IsEmpty());
}

TEST_F(CoordinatorTest, WarnsOnceOfEachKindOfNumericsAndNotOfAnyNumberOfKinds) {
  Start("cluster { workers { start: 100 max: 100 } }");
  for (int i = 0; i < 100; ++i) {
    proto::PeerMessage worker = Worker();
    worker.mutable_registration()->mutable_worker()->set_numerics(
        i < 50 ? absl::StrCat("cpu ", i % 2) : absl::StrCat("nonsense ", i));
    Receive(10 + i, worker);
  }
  EXPECT_EQ(warnings_.size(), 7u);
  EXPECT_EQ(warnings_[0],
            "host pid 0 computes with cpu 1, host pid 0 with cpu 0: results may differ in the last "
            "bits with who computes what");
}

TEST_F(CoordinatorTest, AfterTheTimeoutBeginsWithFewerWorkersOrSaysWhoIsMissing) {
  for (const bool enough : {true, false}) {
    SCOPED_TRACE(enough);
    sent_.clear();
    end_.reset();
    now_ = kStart;
    Start();
    Receive(kOwnShard, Shard(0));
    if (enough) {
      Receive(1, Shard(1));
      Receive(2, Worker());
    }
    now_ = kStart + absl::Seconds(59);
    EXPECT_THAT(coordinator_->Handle(coordinator::Tick{}, now_), IsEmpty());
    now_ = kStart + absl::Seconds(60);
    Tick();
    if (enough) {
      ASSERT_EQ(sent_[kOwnShard].size(), 1u);
      EXPECT_THAT(Assignments(kOwnShard), ElementsAre("0 0:0-4"));
    } else {
      ASSERT_TRUE(end_.has_value());
      EXPECT_THAT(*end_, IsError(absl::StatusCode::kDeadlineExceeded,
                                 HasSubstr("shard 1 and 2 of 2 workers did not come")));
    }
  }
}

TEST_F(CoordinatorTest, IfNobodyComesWhoMayItEndsForTheReasonOfThoseWhoMayNot) {
  Start();
  Receive(kOwnShard, Shard(0));
  Receive(1, Shard(1));
  proto::PeerMessage other = Worker();
  other.mutable_registration()->set_version("9.9");
  Receive(2, other);
  now_ = kStart + absl::Seconds(60);
  Tick();
  ASSERT_TRUE(end_.has_value());
  EXPECT_THAT(*end_, IsError(absl::StatusCode::kFailedPrecondition, HasSubstr("version 9.9")));
  EXPECT_EQ(sent_[1].back().stop().exit_code(), kExitUsage);
}

TEST_F(CoordinatorTest, APeerThatLeavesBeforeTheStartMayBeReplaced) {
  Start();
  Receive(2, Worker());
  Receive(3, Worker());
  Gone(2);
  EXPECT_FALSE(end_.has_value());
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("before the start")));
  sent_.clear();
  Receive(2, Worker());
  Receive(kOwnShard, Shard(0));
  Receive(1, Shard(1));
  EXPECT_TRUE(sent_[1].back().has_view());
}

// Before the training has begun a mistake is everybody's; later, a worker that fails is lost.
TEST_F(CoordinatorTest, AFailureBeforeTheStartIsPassedOnWithItsExitCode) {
  for (const bool begun : {false, true}) {
    sent_.clear();
    end_.reset();
    Start();
    if (begun) {
      Begin();
    } else {
      Receive(2, Worker());
    }
    proto::PeerMessage failure;
    failure.mutable_failure()->set_exit_code(2);
    failure.mutable_failure()->set_reason("no such file");
    Receive(2, failure);
    ASSERT_EQ(end_.has_value(), !begun);
    if (begun) {
      EXPECT_THAT(warnings_.back(), HasSubstr("failed: no such file"));
    } else {
      EXPECT_THAT(
          *end_, IsError(absl::StatusCode::kFailedPrecondition, HasSubstr("failed: no such file")));
    }
  }
}

TEST_F(CoordinatorTest, WarnsOfAParameterGroupThatMatchesNothing) {
  Start("optimizer { groups { match: '*.bias' weight_decay: 0 } groups { match: '*' } }");
  Begin();
  EXPECT_THAT(warnings_, ElementsAre("optimizer.groups[0] changes nothing: no parameter matches "
                                     "\"*.bias\""));
  EXPECT_FALSE(end_.has_value());
}

TEST_F(CoordinatorTest, WarnsWhereMostServersHoldNothing) {
  Start("wire { chunk: 64 }");  // one block, and one of the two servers without any
  Begin();
  EXPECT_THAT(warnings_, IsEmpty());
  Start("cluster { servers: 3 } wire { chunk: 64 }");
  Receive(2, Shard(2));
  Receive(3, Worker(0));
  Receive(4, Worker(1));
  Receive(kOwnShard, Shard(0));
  Receive(1, Shard(1));
  EXPECT_THAT(warnings_, ElementsAre("2 of 3 servers hold no parameters, which are 1 block of 16 "
                                     "values (cluster.servers, wire.chunk)"));
}

TEST_F(CoordinatorTest, WarnsWhereNoStepIsAsLargeAsTheJobSays) {
  Start("train { batch_size: 20 }");
  Begin();
  EXPECT_THAT(warnings_, IsEmpty()) << "each step is an epoch";
  sent_.clear();
  Start("train { batch_size: 24 }");
  Begin();
  EXPECT_THAT(warnings_, ElementsAre("train.batch_size is 24, and an epoch has 20 samples: no step "
                                     "takes more than these"));
}

TEST_F(CoordinatorTest, GoesOnFromACheckpointAtItsStep) {
  begin_.resume.emplace();
  begin_.resume->set_step(4);
  begin_.resume->set_samples(28);
  begin_.resume->set_mode(proto::Manifest::MODE_SYNC);
  begin_.resume->set_unit_samples(8);
  begin_.resume->set_data_digest("data");
  begin_.resume->add_blocks()->set_version(4);
  Start();
  Begin();
  EXPECT_EQ(restores_, 1);
  EXPECT_THAT(sent_[2], IsEmpty()) << "workers begin when the floats are there";
  ASSERT_TRUE(sent_[1].back().has_restore());
  Restored();
  ASSERT_EQ(sent_[2].size(), 1u);
  EXPECT_EQ(sent_[2][0].view().from_step(), 4);
  EXPECT_THAT(logs_, ::testing::Contains(HasSubstr("training goes on at step 4: 2 workers")));
}

TEST_F(CoordinatorTest, RefusesACheckpointOfOtherUnitsOrBlocks) {
  struct Case {
    int64_t unit_samples, block_values;
    int blocks;
    std::string why;
  };
  for (const Case& held : std::vector<Case>{
           {16, 8, 2, "contributions of 16 samples, this job in contributions of 4: train.batch"},
           {4, 16, 2, "wire.chunk must stay as it was"},
           {4, 8, 3, "the checkpoint is of 3 blocks, this job's model of 2"},
           {4, 8, 2, ""}}) {
    SCOPED_TRACE(held.why);
    end_.reset();
    begin_.resume.emplace();
    begin_.resume->set_mode(proto::Manifest::MODE_ASYNC);
    begin_.resume->set_unit_samples(held.unit_samples);
    begin_.resume->set_block_values(held.block_values);
    for (int block = 0; block < held.blocks; ++block) {
      begin_.resume->add_blocks()->set_block(block);
    }
    begin_.resume->set_data_digest("data");
    Start("consistency { mode { mode: NAME_ASYNC } }");
    Receive(2, Worker());
    Receive(3, Worker());
    Receive(kOwnShard, Shard(0));
    Receive(1, Shard(1));
    EXPECT_EQ(coordinator_->Status(now_).state() == "beginning", held.why.empty());
    ASSERT_EQ(end_.has_value(), !held.why.empty());
    if (held.why.empty()) continue;
    EXPECT_THAT(*end_, IsError(absl::StatusCode::kFailedPrecondition, HasSubstr(held.why)));
  }
}

// Who comes first is right where nobody knows better.
TEST_F(CoordinatorTest, AWorkerWithOtherDataThanTheCheckpointsIsRefusedThoughItComesFirst) {
  begin_.resume.emplace();
  begin_.resume->set_mode(proto::Manifest::MODE_SYNC);
  begin_.resume->set_unit_samples(8);
  begin_.resume->set_data_digest("data");
  begin_.resume->add_blocks();
  Start();
  Receive(9, Worker(0, "other data"));
  EXPECT_THAT(Reason(9), HasSubstr("the checkpoint was made on other data than this worker's"));
  EXPECT_EQ(sent_[9].back().stop().exit_code(), 2);
  Begin();
  EXPECT_EQ(restores_, 1);
}

}  // namespace
}  // namespace rubato
