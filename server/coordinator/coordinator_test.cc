#include "server/coordinator/coordinator.h"

#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_matchers.h"
#include "common/space/placement.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kDigest[] = "0123456789abcdef";
const absl::Time kStart = absl::UnixEpoch() + absl::Hours(1);

// A coordinator and what it has told whom. Time moves by hand.
class CoordinatorTest : public ::testing::Test {
 protected:
  // 2 shards, 2 workers, 4 micro-batches of a batch of 8; 20 samples: 3 steps an epoch; two epochs.
  void Start(const std::string& more = "") {
    proto::Job job;
    ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
        "cluster { servers: 2 workers { start: 2 min: 1 max: 3 } address: '127.0.0.1:1' "
        "start_timeout: 60 "
        "} "
        "optimizer { learning_rate: 0.1 learning_rate_parity: true } "
        "consistency { mode: MODE_SYNC } "
        "train { batch_size: 8 micro_batches: 4 until { epochs: 2 } } "
        "metrics { every { steps: 1 } }",
        &job));
    proto::Job changes;
    ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(more, &changes));
    job.MergeFrom(changes);
    // What the YAML reader fills in.
    job.mutable_evaluation()->mutable_every()->set_epochs(1);
    coordinator_ =
        std::make_unique<Coordinator>(job, kDigest, "1.0", resume_, /*initial=*/false, kStart);
  }

  static proto::PeerMessage Shard(int shard) {
    proto::PeerMessage message;
    proto::Registration* registration = message.mutable_registration();
    registration->set_version("1.0");
    registration->set_job_digest(kDigest);
    registration->set_address(absl::StrCat("host:", shard));
    registration->set_shard(shard);
    registration->set_process(absl::StrCat("host pid ", shard));
    return message;
  }

  static proto::PeerMessage Worker(int rank = -1, const std::string& data = "data") {
    proto::PeerMessage message = Shard(0);
    proto::WorkerRegistration* worker = message.mutable_registration()->mutable_worker();
    worker->set_rank(rank);
    worker->set_data_digest(data);
    worker->set_train_samples(20);
    worker->set_numerics("cpu");
    worker->mutable_layout()->add_parameters()->add_shape(10);
    return message;
  }

  // What the person who asked is answered, if one did.
  absl::StatusOr<std::string> Handle(const coordinator::Event& event) {
    absl::StatusOr<std::string> answer = "";
    for (const coordinator::Outcome& outcome : coordinator_->Handle(event, now_)) {
      if (const auto* send = std::get_if<coordinator::Send>(&outcome)) {
        sent_[send->peer].push_back(send->message);
      } else if (const auto* warn = std::get_if<coordinator::Warn>(&outcome)) {
        warnings_.push_back(warn->text);
      } else if (const auto* line = std::get_if<MetricsLine>(&outcome)) {
        lines_.push_back(*line);
      } else if (const auto* collect = std::get_if<coordinator::Collect>(&outcome)) {
        collect_ = collect->version;
      } else if (const auto* end = std::get_if<coordinator::End>(&outcome)) {
        end_ = end->status;
      } else if (std::holds_alternative<coordinator::Restore>(outcome)) {
        ++restores_;
      } else if (const auto* write = std::get_if<coordinator::WriteCheckpoint>(&outcome)) {
        manifests_.push_back(write->manifest);
        snapshots_.push_back(write->snapshot);
      } else if (const auto* journal = std::get_if<coordinator::Journal>(&outcome)) {
        journal_.push_back(journal->reason);
      } else if (const auto* text = std::get_if<coordinator::Answer>(&outcome)) {
        answer = text->text;
      }
    }
    return answer;
  }

  void Receive(PeerId peer, const proto::PeerMessage& message) {
    Handle(coordinator::FromPeer{peer, message}).IgnoreError();
  }

  // All register and the shards open: peers 0, 1 are shards, 2 and 3 are workers.
  void Begin() {
    Receive(2, Worker());
    Receive(3, Worker());
    Receive(kOwnShard, Shard(0));
    Receive(1, Shard(1));
    Opened();
  }

  void Opened() {
    proto::PeerMessage opened;
    opened.mutable_shard_opened()->set_view(1);
    Receive(kOwnShard, opened);
    EXPECT_THAT(sent_[2], IsEmpty()) << "workers hear of a view when all shards have opened it";
    Receive(1, opened);
  }

  static proto::PeerMessage Computed(int64_t unit, Range leaves, double loss, int64_t samples) {
    proto::PeerMessage message;
    proto::Progress* progress = message.mutable_progress();
    progress->set_unit(unit);
    progress->set_first_leaf(leaves.begin);
    for (int64_t leaf = leaves.begin; leaf < leaves.end; ++leaf) {
      progress->add_loss_sum(loss * samples);
      progress->add_correct(0.75);  // of two samples with labels in several places
      progress->add_samples(samples);
    }
    return message;
  }

  static proto::PeerMessage Evaluated(int64_t unit) {
    proto::PeerMessage message;
    message.mutable_evaluation()->set_unit(unit);
    message.mutable_evaluation()->set_samples(20);
    return message;
  }

  proto::PeerMessage Idle(int64_t applied = 0) const {
    proto::PeerMessage message;
    message.mutable_idle()->set_view(coordinator_->view().number());
    message.mutable_idle()->set_applied(applied);
    return message;
  }

  // Both shards have closed the view with their blocks at these versions.
  void Close(int64_t version0, int64_t version1) {
    for (const PeerId shard : {kOwnShard, PeerId{1}}) {
      ASSERT_TRUE(sent_[shard].back().has_close()) << shard;
    }
    for (const PeerId shard : {kOwnShard, PeerId{1}}) {
      proto::PeerMessage message;
      proto::ShardClosed* closed = message.mutable_shard_closed();
      closed->set_view(coordinator_->view().number());
      closed->set_lowest_version(shard == 0 ? version0 : version1);
      closed->set_highest_version(shard == 0 ? version0 : version1);
      closed->set_units_below(units_below_);
      Receive(shard, message);
    }
  }

  void Gone(PeerId peer) { Handle(coordinator::PeerGone{peer}).IgnoreError(); }
  void Tick() { Handle(coordinator::Tick{}).IgnoreError(); }
  void Beat(int rank) { Handle(coordinator::Heartbeat{{rank, 1}}).IgnoreError(); }
  void Stop(const absl::Status& end) { Handle(coordinator::StopRequested{end, ""}).IgnoreError(); }
  void Checkpointed(uint32_t id, const absl::StatusOr<std::string>& path) {
    Handle(coordinator::Checkpointed{id, path}).IgnoreError();
  }

  // "0: 0-2, 1: 2-4" for each assignment of the last view sent to the peer.
  std::vector<std::string> Assignments(PeerId peer) {
    std::vector<std::string> texts;
    for (const proto::Assignment& assignment : sent_[peer].back().view().assignments()) {
      std::vector<std::string> grants;
      for (const proto::Grant& grant : assignment.grants()) {
        grants.push_back(
            absl::StrCat(grant.rank(), ":", grant.first_leaf(), "-", grant.end_leaf()));
      }
      texts.push_back(absl::StrCat(assignment.from_step(), " ", absl::StrJoin(grants, " ")));
    }
    return texts;
  }

  std::string Reason(PeerId peer) {
    return sent_[peer].empty() ? "" : sent_[peer].back().stop().reason();
  }

  absl::Time now_ = kStart;
  std::unique_ptr<Coordinator> coordinator_;
  std::map<PeerId, std::vector<proto::CoordinatorMessage>> sent_;
  std::vector<std::string> warnings_, journal_;
  int64_t units_below_ = 0;
  std::vector<MetricsLine> lines_;
  std::optional<int64_t> collect_;
  std::optional<absl::Status> end_;
  std::optional<proto::Manifest> resume_;
  std::vector<proto::Manifest> manifests_;
  std::vector<uint32_t> snapshots_;
  int restores_ = 0;
};

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

TEST_F(CoordinatorTest, WarnsWhereNumericsDiffer) {
  Start();
  Receive(2, Worker());
  proto::PeerMessage other = Worker();
  other.mutable_registration()->mutable_worker()->set_numerics("gpu");
  Receive(3, other);
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("last bits")));
}

TEST_F(CoordinatorTest, AfterTheTimeoutBeginsWithFewerWorkersOrSaysWhoIsMissing) {
  for (const bool enough : {true, false}) {
    SCOPED_TRACE(enough);
    sent_.clear();
    end_.reset();
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
  tested.mutable_evaluation()->set_unit(1);
  tested.mutable_evaluation()->set_loss_sum(5);
  tested.mutable_evaluation()->set_samples(10);
  Receive(2, tested);
  EXPECT_DOUBLE_EQ(lines_.back().loss, 0.5);
  EXPECT_FALSE(lines_.back().accuracy.has_value());
}

TEST_F(CoordinatorTest, GivesOutEachContributionOnceAndTestsAtEpochs) {
  // A contribution is half a step: 4 samples, 5 contributions an epoch.
  Start("consistency { mode: MODE_ASYNC }");
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
  // The test at the end of the first epoch has not come yet.
  EXPECT_FALSE(sent_[2].back().has_evaluation_request());
  EXPECT_THAT(coordinator_->Status(now_).waits(),
              ElementsAre(HasSubstr("a test of earlier parameters waits for worker 0")));
  Receive(2, Evaluated(3));
  EXPECT_DOUBLE_EQ(lines_.back().epoch, 1);
  ASSERT_TRUE(sent_[2].back().has_evaluation_request());
  EXPECT_EQ(sent_[2].back().evaluation_request().step(), 6);

  proto::PeerMessage tested;
  tested.mutable_evaluation()->set_unit(6);
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
  EXPECT_EQ(summary.samples, 40);
  EXPECT_EQ(summary.steps, 6);
  EXPECT_DOUBLE_EQ(summary.test_accuracy.value(), 0.85);
  EXPECT_DOUBLE_EQ(summary.test_loss, 0.5);
  EXPECT_DOUBLE_EQ(summary.validation_loss.value(), 0);
  EXPECT_DOUBLE_EQ(summary.samples_per_second, 40.0 / 6);
  EXPECT_EQ(summary.duplicates, 2);
  EXPECT_EQ(summary.blocks[0].block(), 0);
  EXPECT_FALSE(end_.has_value());

  Handle(coordinator::Collected{absl::OkStatus()}).IgnoreError();
  RUBATO_EXPECT_OK(*end_);
  for (PeerId peer : {1, 2, 3}) EXPECT_EQ(sent_[peer].back().stop().exit_code(), 0);
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
    Receive(2, Worker());
    if (begun) Begin();
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

// What the last message to both shards was.
#define EXPECT_LAST_TO_SHARDS(has_what)                 \
  for (const PeerId shard : {kOwnShard, PeerId{1}}) {   \
    ASSERT_FALSE(sent_[shard].empty());                 \
    EXPECT_TRUE(sent_[shard].back().has_what) << shard; \
  }

proto::PeerMessage Copied(uint32_t id, int64_t block, int64_t version) {
  proto::PeerMessage message;
  message.mutable_snapshot_copied()->set_id(id);
  proto::BlockState* state = message.mutable_snapshot_copied()->add_blocks();
  state->set_block(block);
  state->set_version(version);
  return message;
}

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
  // The next is announced when this one has been written; a failure to write does not end the job.
  Checkpointed(first.id(), absl::ResourceExhaustedError("disk full"));
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("disk full; training goes on")));
  EXPECT_FALSE(end_.has_value());
  EXPECT_EQ(sent_[1].back().snapshot().step(), 4);
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

TEST_F(CoordinatorTest, ASecondSignalEndsAtOnce) {
  Start();
  Begin();
  for (int i = 0; i < 2; ++i) {
    EXPECT_FALSE(end_.has_value());
    Stop(absl::CancelledError("interrupted"));
  }
  EXPECT_TRUE(end_.has_value());
}

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

TEST_F(CoordinatorTest, ASilentWorkerIsTakenForDeadAndToldSo) {
  Start("cluster { lease: 5 }");
  Begin();
  for (int i = 0; i < 51; ++i) {
    now_ += absl::Milliseconds(100);
    Beat(0);
    Tick();
  }
  ASSERT_TRUE(sent_[3].back().has_stop());
  EXPECT_TRUE(sent_[3].back().stop().evicted());
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("worker 1 (host pid 0) was not heard of for 5s")));
  EXPECT_TRUE(sent_[2].back().has_view()) << "the other stays";
  EXPECT_LAST_TO_SHARDS(has_close());
  // What it says afterwards changes nothing.
  Receive(3, Computed(0, {2, 4}, 1, 2));
  EXPECT_THAT(Reason(3), HasSubstr("not registered"));
}

TEST_F(CoordinatorTest, TheTestsOfOthersAreWaitedForUnlessTheyDie) {
  Start("consistency { mode: MODE_ASYNC } cluster { lease: 5 }");
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
  EXPECT_FALSE(sent_[2].back().has_evaluation_request());
  for (int i = 0; i < 51; ++i) {
    now_ += absl::Milliseconds(100);
    Beat(0);
    Tick();
  }
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("worker 1 (host pid 0) was not heard of for 5s "
                                               "(cluster.lease) during a test of earlier")));
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
  wait(51, {});
  ASSERT_EQ(warnings_.size(), 3u);
  EXPECT_THAT(warnings_[1], HasSubstr("worker 1 (host pid 0) was not heard of for 5s "
                                      "(cluster.lease) during the final test"));
  EXPECT_THAT(warnings_[2], HasSubstr("no worker is left to test the final parameters"));
  EXPECT_TRUE(sent_[1].back().has_report_request());
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
}

TEST_F(CoordinatorTest, AWorkerThatIsAliveButHoldsUpTheOthersIsTakenForDead) {
  Start("cluster { lease: 5 stall_timeout: 20 }");
  Begin();
  Receive(2, Computed(0, {0, 2}, 1, 2));
  for (int i = 0; i < 201; ++i) {
    now_ += absl::Milliseconds(100);
    for (int rank : {0, 1}) Beat(rank);
    Tick();
  }
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("worker 1 (host pid 0) is alive but has computed "
                                               "nothing for 20s")));
}

// Who has computed what it was given and does not ask for more holds up those who are ahead of it:
// they have been given work, and may not begin.
TEST_F(CoordinatorTest, AWorkerThatDoesNotAskForMoreIsTakenForDeadNotThoseWhoWaitForIt) {
  Start(
      "cluster { lease: 5 stall_timeout: 20 } "
      "consistency { mode: MODE_BOUNDED staleness: 1 }");
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
  for (int i = 0; i < 201; ++i) {
    now_ += absl::Milliseconds(100);
    for (int rank : {0, 1}) Beat(rank);
    Tick();
  }
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("worker 0 (host pid 0) is alive but has computed "
                                               "nothing for 20s")));
}

TEST_F(CoordinatorTest, ANewViewDoesNotRenewTheLeaseOfASilentWorker) {
  Start("cluster { lease: 5 }");
  Begin();
  for (int i = 0; i < 51; ++i) {
    now_ += absl::Milliseconds(100);
    Beat(0);
    if (i == 30) {
      Receive(4, Worker());
      Close(0, 0);
      EXPECT_EQ(sent_[2].back().view().members_size(), 3);
    }
    Tick();
  }
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("worker 1 (host pid 0) was not heard of for 5s")));
}

TEST_F(CoordinatorTest, NobodyIsBlamedForAPause) {
  Start(
      "cluster { workers { min: 2 } lease: 5 stall_timeout: 20 } "
      "consistency { mode: MODE_ASYNC }");
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

// The end of the lineage, its end seen by all, and another one from there on.
TEST_F(CoordinatorTest, ASwitchTakesPlaceWhenNothingIsUnderWay) {
  Start();
  Begin();
  auto text = Handle(coordinator::SwitchRequested{{proto::View::MODE_BOUNDED, 3}});
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
  EXPECT_EQ(view.mode(), proto::View::MODE_BOUNDED);
  EXPECT_EQ(view.staleness(), 3);
  EXPECT_EQ(view.origin_unit(), 2);
  EXPECT_EQ(view.origin_samples(), 16);
  // 24 samples in contributions of 4; the epoch's end is between them.
  EXPECT_EQ(view.until_step(), 2 + 6);
  // Asked for once more, there is nothing to do.
  const size_t sent = sent_[1].size();
  text = Handle(coordinator::SwitchRequested{{proto::View::MODE_BOUNDED, 3}});
  RUBATO_ASSERT_OK(text);
  EXPECT_EQ(*text, "the mode is bounded, staleness 3 already");
  EXPECT_EQ(sent_[1].size(), sent);
  // And back, when what has been given out is applied.
  proto::PeerMessage request;
  request.mutable_work_request();
  Receive(2, request);
  EXPECT_EQ(sent_[2].back().work().contribution(), 2);
  RUBATO_ASSERT_OK(Handle(coordinator::SwitchRequested{{proto::View::MODE_SYNC, 0}}));
  Receive(3, request);
  EXPECT_FALSE(sent_[3].back().work().has_contribution());
  Receive(3, Idle());
  EXPECT_TRUE(sent_[1].back().has_view());
  proto::PeerMessage computed = Computed(2, {0, 2}, 1, 2);
  Receive(2, computed);
  Receive(2, Idle(/*applied=*/1));
  Close(3, 3);
  EXPECT_EQ(sent_[2].back().view().mode(), proto::View::MODE_SYNC);
  EXPECT_EQ(sent_[2].back().view().origin_samples(), 20);
  EXPECT_EQ(coordinator_->Status(now_).ledger().applied(), 1);
}

TEST_F(CoordinatorTest, TheScheduleSaysWhichModeHoldsWhen) {
  Start(
      "consistency { schedule { mode: MODE_ASYNC until { epochs: 1 } } schedule { mode: MODE_SYNC "
      "} }");
  Begin();
  EXPECT_EQ(sent_[2].back().view().mode(), proto::View::MODE_ASYNC);
  EXPECT_EQ(sent_[2].back().view().until_step(), 5);
}

// applied + partial + lost = given, and what is not whole is given out again.
TEST_F(CoordinatorTest, AccountsForWhatALostWorkerHadBeenGiven) {
  Start("consistency { mode: MODE_ASYNC }");
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

TEST_F(CoordinatorTest, ATestThatWasNotBegunIsAskedForWithTheUnitAgain) {
  Start("consistency { mode: MODE_ASYNC }");
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

proto::PeerMessage NotFinite() {
  proto::PeerMessage message;
  message.mutable_failure()->set_exit_code(1);
  message.mutable_failure()->set_reason("step 2: the gradient of x is not finite");
  message.mutable_failure()->set_non_finite(true);
  return message;
}

TEST_F(CoordinatorTest, TheSentenceOfADivergedJobNamesTheLastGoodCheckpoint) {
  Start();
  Begin();
  Receive(3, NotFinite());
  ASSERT_TRUE(end_.has_value());
  const std::string sentence = "step 2: the gradient of x is not finite; there is no checkpoint";
  EXPECT_THAT(*end_,
              IsError(absl::StatusCode::kAborted, "worker 1 (host pid 0) failed: " + sentence));
  EXPECT_EQ(Reason(2), "worker 1 (host pid 0) failed: " + sentence);
  // The culprit hears of its own failure first.
  const proto::Stop& own = sent_[3][sent_[3].size() - 2].stop();
  EXPECT_EQ(own.reason(), sentence);
  EXPECT_TRUE(own.refused());
}

// It may be better than the one before, and training has stopped in any case.
TEST_F(CoordinatorTest, ADivergedJobWaitsForTheCheckpointThatIsBeingWritten) {
  for (const bool good : {true, false}) {
    sent_.clear();
    end_.reset();
    Start("checkpoint { every { steps: 2 } }");
    coordinator_->set_last_checkpoint("older");
    Begin();
    const uint32_t id = sent_[1].back().snapshot().id();
    Receive(kOwnShard, Copied(id, 0, 2));
    Receive(1, Copied(id, 1, 2));
    Receive(3, NotFinite());
    Receive(2, NotFinite());
    EXPECT_FALSE(end_.has_value());
    Checkpointed(id, good ? absl::StatusOr<std::string>("newer")
                          : absl::StatusOr<std::string>(absl::InternalError("disk")));
    ASSERT_TRUE(end_.has_value());
    EXPECT_THAT(std::string(end_->message()),
                ::testing::AllOf(HasSubstr("worker 1"),
                                 ::testing::EndsWith(absl::StrCat("the last good checkpoint is ",
                                                                  good ? "newer" : "older"))));
  }
}

TEST_F(CoordinatorTest, GoesOnFromACheckpointAtItsStep) {
  resume_.emplace();
  resume_->set_step(4);
  resume_->set_samples(28);
  resume_->set_mode(proto::View::MODE_SYNC);
  resume_->set_unit_samples(8);
  resume_->set_data_digest("data");
  resume_->add_blocks()->set_version(4);
  Start();
  Begin();
  EXPECT_EQ(restores_, 1);
  EXPECT_THAT(sent_[2], IsEmpty()) << "workers begin when the floats are there";
  ASSERT_TRUE(sent_[1].back().has_restore());
  proto::PeerMessage restored;
  restored.mutable_shard_restored();
  Receive(kOwnShard, restored);
  Receive(1, restored);
  ASSERT_EQ(sent_[2].size(), 1u);
  EXPECT_EQ(sent_[2][0].view().from_step(), 4);
}

TEST_F(CoordinatorTest, RefusesACheckpointOfOtherDataOrUnits) {
  for (const bool other_data : {true, false}) {
    sent_.clear();
    end_.reset();
    resume_.emplace();
    resume_->set_mode(proto::View::MODE_ASYNC);
    resume_->set_unit_samples(other_data ? 4 : 16);
    resume_->set_data_digest(other_data ? "other" : "data");
    Start("consistency { mode: MODE_ASYNC }");
    Receive(2, Worker());
    Receive(3, Worker());
    Receive(kOwnShard, Shard(0));
    Receive(1, Shard(1));
    ASSERT_TRUE(end_.has_value());
    EXPECT_THAT(*end_, IsError(absl::StatusCode::kFailedPrecondition,
                               HasSubstr(other_data ? "other data" : "train.batch_size")));
  }
}

// Contributions that only some blocks hold are given out again, first.
TEST_F(CoordinatorTest, OnArrivalWhatIsNotWholeIsGivenOutAgain) {
  resume_.emplace();
  resume_->set_step(5);
  resume_->set_mode(proto::View::MODE_ASYNC);
  resume_->set_unit_samples(4);
  resume_->set_block_values(8);
  resume_->set_data_digest("data");
  proto::BlockState* block = resume_->add_blocks();
  block->set_units_below(5);
  block = resume_->add_blocks();
  block->set_block(1);
  block->set_units_below(2);
  block->add_units_above(3);
  Start("consistency { mode: MODE_ASYNC } wire { chunk: 32 }");  // 10 values: two blocks of 8
  Begin();
  proto::PeerMessage restored;
  restored.mutable_shard_restored();
  Receive(kOwnShard, restored);
  Receive(1, restored);
  proto::PeerMessage request;
  request.mutable_work_request();
  std::vector<int64_t> given;
  for (int i = 0; i < 4; ++i) {
    Receive(2, request);
    given.push_back(sent_[2].back().work().contribution());
  }
  EXPECT_THAT(given, ElementsAre(2, 4, 5, 6));
}

TEST_F(CoordinatorTest, AVerdictClipsByTheNormOverAllShardsAndLeavesOutWhatIsNotFinite) {
  Start(
      "optimizer { clip_grad_norm: 1 } train { on_non_finite: ON_NON_FINITE_SKIP } wire { chunk: "
      "32 }");
  Begin();  // 10 values: two blocks of 8, one a shard
  proto::PeerMessage measured;
  const auto set = [&](int64_t step, double sum) {
    proto::ShardMeasured* m = measured.mutable_shard_measured();
    m->Clear();
    m->set_step(step);
    m->set_samples(2);
    proto::ShardMeasured::Node* node = m->add_nodes();
    node->set_begin(0);
    node->set_end(1);
    node->set_sum(sum);
  };
  set(0, 100);  // norm 10 of the sum, 5 of the mean
  Receive(kOwnShard, measured);
  measured.mutable_shard_measured()->clear_nodes();
  Receive(1, measured);
  EXPECT_LAST_TO_SHARDS(has_verdict());
  EXPECT_TRUE(sent_[1].back().verdict().apply());
  EXPECT_DOUBLE_EQ(sent_[1].back().verdict().factor(), 1 / (5 + 1e-6));
  measured.mutable_shard_measured()->Clear();
  measured.mutable_shard_measured()->set_step(1);
  measured.mutable_shard_measured()->set_non_finite(3);
  Receive(1, measured);
  set(1, 1);
  Receive(kOwnShard, measured);
  EXPECT_FALSE(sent_[1].back().verdict().apply());
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("step 1 is left out")));
}

}  // namespace
}  // namespace rubato
